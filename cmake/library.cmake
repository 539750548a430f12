# SPDX-License-Identifier: Apache-2.0
# libcarole (shared, everything in it) and the command `carole`.
get_property(modules GLOBAL PROPERTY CRL_MODULES)
file(WRITE ${CMAKE_BINARY_DIR}/generated/library.c "extern int crl_library;\n")
add_library(carole_library SHARED ${CMAKE_BINARY_DIR}/generated/library.c)
set_target_properties(carole_library PROPERTIES OUTPUT_NAME carole
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
foreach(module ${modules})
    target_link_libraries(carole_library PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${module}>)
endforeach()
if(EXISTS ${CMAKE_SOURCE_DIR}/cli/main.c)
    add_executable(carole cli/main.c)
    target_link_libraries(carole PRIVATE crl_cli)
endif()
