# SPDX-License-Identifier: Apache-2.0
# crl_module(name FOLDER dir USES targets...): the static library crl_<name> of every .c below dir.
set_property(GLOBAL PROPERTY CRL_MODULES "")

function(crl_module name)
    cmake_parse_arguments(PARSE_ARGV 1 M "" "FOLDER" "USES")
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${M_FOLDER}/*.c)
    if(NOT CRL_MPI_TARGET)
        list(FILTER sources EXCLUDE REGEX "/engine/comm/mpi[a-z_]*\\.c$")
    endif()
    # With CUDA's headers, or the emulation's: cuda.cmake, nccl.cmake, tests/cuda_on_cpu.
    list(FILTER sources EXCLUDE REGEX "/engine/(device/cuda[a-z_]*|kernels/cuda/[a-z_]*)\\.c$")
    list(FILTER sources EXCLUDE REGEX "/engine/comm/nccl[a-z_]*\\.c$")
    list(FILTER sources EXCLUDE REGEX "/cli/main\\.c$")
    add_library(crl_${name} STATIC ${sources})
    target_link_libraries(crl_${name} PUBLIC crl_flags ${M_USES})
    set_property(GLOBAL APPEND PROPERTY CRL_MODULES crl_${name})
endfunction()
