# SPDX-License-Identifier: Apache-2.0
# Libraries: the needed ones stop the configuration, the optional ones set CRL_WITH_*.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(PkgConfig REQUIRED)
pkg_check_modules(yaml REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)

# Products of the CPU. Debian's oneDNN ships no .pc file. Of the two files that make products, one
# is compiled.
set(CRL_DNNL_TARGET "")
if(NOT CRL_WITH_DNNL STREQUAL "OFF")
    find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
    find_library(DNNL_LIBRARY dnnl)
    if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
        add_library(crl_dnnl INTERFACE IMPORTED)
        set_target_properties(crl_dnnl PROPERTIES
            INTERFACE_INCLUDE_DIRECTORIES "${DNNL_INCLUDE_DIR}"
            INTERFACE_LINK_LIBRARIES "${DNNL_LIBRARY}")
        add_library(PkgConfig::dnnl ALIAS crl_dnnl)
        set(CRL_DNNL_TARGET PkgConfig::dnnl)
    elseif(CRL_WITH_DNNL STREQUAL "ON")
        message(FATAL_ERROR "CRL_WITH_DNNL=ON, but no oneDNN was found")
    endif()
endif()
set(crl_left_out engine/kernels/cpu/gemm_plain.c)
if(NOT CRL_DNNL_TARGET)
    set(crl_left_out engine/kernels/cpu/gemm_dnnl.c)
endif()
set_source_files_properties(${crl_left_out} PROPERTIES HEADER_FILE_ONLY ON)

set(CRL_MPI_TARGET "")
if(NOT CRL_WITH_MPI STREQUAL "OFF")
    find_package(MPI COMPONENTS C)
    if(MPI_C_FOUND)
        set(CRL_MPI_TARGET MPI::MPI_C)
        add_compile_definitions(CRL_WITH_MPI=1)
    elseif(CRL_WITH_MPI STREQUAL "ON")
        message(FATAL_ERROR "CRL_WITH_MPI=ON, but no MPI was found")
    endif()
endif()
