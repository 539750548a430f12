# SPDX-License-Identifier: Apache-2.0
# libcarole (shared, everything in it), the command `carole`, and what `cmake --install` puts where:
#   bin/carole
#   lib/libcarole.so, lib/cmake/carole/, lib/pkgconfig/carole.pc
#   include/carole/carole.h          the public face; beside it, under their own paths, the contracts
#                                    that own layers, schedules and formats are written against
include(CMakePackageConfigHelpers)

target_compile_definitions(crl_cli PRIVATE CRL_VERSION=${PROJECT_VERSION})

# Made of the modules' objects, so that nothing is left out for being unused; linking crl_cli adds
# only the libraries that they need.
get_property(modules GLOBAL PROPERTY CRL_MODULES)
add_library(carole_library SHARED)
set_target_properties(carole_library PROPERTIES OUTPUT_NAME carole EXPORT_NAME carole
    LINKER_LANGUAGE C VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
foreach(module ${modules})
    target_sources(carole_library PRIVATE $<TARGET_OBJECTS:${module}>)
endforeach()
target_link_libraries(carole_library PRIVATE crl_cli)
# Only crl_* is to be seen: the API, and the contracts' functions for plug-ins of one's own.
target_link_options(carole_library PRIVATE
    LINKER:--version-script=${CMAKE_SOURCE_DIR}/cmake/libcarole.map)
set_property(TARGET carole_library PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/libcarole.map)
target_include_directories(carole_library INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/carole>)

add_executable(carole cli/main.c)
target_link_libraries(carole PRIVATE crl_cli)

install(TARGETS carole RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS carole_library EXPORT carole-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY engine DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/carole
    FILES_MATCHING PATTERN "*.h" PATTERN "*_internal.h" EXCLUDE)
install(FILES cli/builtins.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/carole/cli)
install(FILES cmake/carole.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/carole)

set(crl_package ${CMAKE_INSTALL_LIBDIR}/cmake/carole)
install(EXPORT carole-targets NAMESPACE carole:: DESTINATION ${crl_package})
configure_package_config_file(cmake/carole-config.cmake.in
    ${CMAKE_BINARY_DIR}/generated/carole-config.cmake INSTALL_DESTINATION ${crl_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/carole-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/carole-config.cmake
              ${CMAKE_BINARY_DIR}/generated/carole-config-version.cmake
        DESTINATION ${crl_package})
# Paths relative to the file itself, so that the same file is right under any --prefix.
file(RELATIVE_PATH crl_pc_root "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/carole.pc.in ${CMAKE_BINARY_DIR}/generated/carole.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/carole.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The command's tests run the command and install the library.
function(crl_tests_need_command)
    if(TARGET test_cli)
        add_dependencies(test_cli carole carole_library)
    endif()
endfunction()
cmake_language(DEFER CALL crl_tests_need_command)
