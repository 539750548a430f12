# SPDX-License-Identifier: Apache-2.0
# The CUDA backend, wherever there is nvcc: a GPU is not needed for that. The .cu files go through it
# by hand and not as a language of CMake's, whose compilers would get the host's flags and sanitizers;
# the .c files through the C compiler.
#   crl_cuda         static library of both; brings the static CUDA runtime with it
#   crl_cuda_host    the objects of the .c files
#   <name>.cu.ptxas  what the assembler says of registers and spills, read by a test
# The runtime looks for a driver at its first call, and cuBLASLt, cuDNN and NCCL are opened at theirs
# (engine/device/cuda_library.h), so programs start and compute on the CPU without any of them.
set(CRL_WITH_HWLOC AUTO CACHE STRING "threads kept near their GPU, through hwloc: AUTO, ON or OFF")
set(CRL_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPUs to compile for; PTX of the last one goes along")

set(CRL_CUDA_TARGET "")
if(NOT TARGET crl_cuda_library)
    return()
endif()
message(STATUS "CUDA: ${CRL_NVCC}, for ${CRL_CUDA_ARCHITECTURES}")

set(architectures "")
foreach(architecture ${CRL_CUDA_ARCHITECTURES})
    list(APPEND architectures -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
list(GET CRL_CUDA_ARCHITECTURES -1 last)
list(APPEND architectures -gencode arch=compute_${last},code=compute_${last})
# -fmad=false: products and sums are fused only where the source says so, which makes the numbers
# those of the CPU emulation and the same in every copy of an expression.
set(flags -std=c++17 -O3 -fmad=false ${architectures} -Xptxas=-v -D_GNU_SOURCE -I${CMAKE_SOURCE_DIR}
    -Xcompiler=-Wall,-Wextra,-fPIC,-fvisibility=default)
if(CRL_WERROR)
    list(APPEND flags -Werror=all-warnings)
endif()

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/engine/kernels/cuda/*.cu)
set(objects "")
foreach(source ${sources})
    cmake_path(GET source FILENAME name)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    set(report ${CMAKE_BINARY_DIR}/cuda/${name}.ptxas)
    # The assembler's report goes into a file, unless nvcc fails.
    string(JOIN "' '" compile ${CRL_NVCC} ${flags} -MD -MF ${object}.d -c ${source} -o ${object})
    add_custom_command(OUTPUT ${object} BYPRODUCTS ${report}
        COMMAND sh -c "'${compile}' 2>'${report}' || { cat '${report}'; exit 1; }"
        DEPENDS ${source} DEPFILE ${object}.d COMMENT "Building CUDA object cuda/${name}.o" VERBATIM)
    list(APPEND objects ${object})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)

if(NOT CRL_WITH_HWLOC STREQUAL "OFF")
    pkg_check_modules(hwloc IMPORTED_TARGET hwloc>=2)
    if(CRL_WITH_HWLOC STREQUAL "ON" AND NOT hwloc_FOUND)
        message(FATAL_ERROR "CRL_WITH_HWLOC=ON, but no hwloc 2 was found")
    endif()
endif()
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/engine/device/cuda*.c
     ${CMAKE_SOURCE_DIR}/engine/kernels/cuda/*.c)
if(hwloc_FOUND)
    list(FILTER sources EXCLUDE REGEX "/cuda_near_none\\.c$")
    set(near PkgConfig::hwloc)
else()
    list(FILTER sources EXCLUDE REGEX "/cuda_near_hwloc\\.c$")
    set(near "")
endif()
list(FILTER sources EXCLUDE REGEX "/cuda_library\\.c$")
add_library(crl_cuda_host OBJECT ${sources})
target_link_libraries(crl_cuda_host PRIVATE crl_flags ${near})
target_include_directories(crl_cuda_host SYSTEM PRIVATE ${CRL_CUDA_INCLUDE} ${CRL_CUBLASLT_INCLUDE})

set(CRL_CUDA_TARGET crl_cuda)
add_library(crl_cuda STATIC ${objects} $<TARGET_OBJECTS:crl_cuda_host>)
set_target_properties(crl_cuda PROPERTIES LINKER_LANGUAGE CXX)
set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set(runtime crl_cuda_library ${CRL_CUDART} ${near} Threads::Threads ${CMAKE_DL_LIBS} rt stdc++)
target_link_libraries(crl_cuda INTERFACE crl_kernels ${runtime})

target_sources(carole_library PRIVATE ${objects} $<TARGET_OBJECTS:crl_cuda_host>)
target_link_libraries(carole_library PRIVATE ${runtime})
add_dependencies(carole_library crl_cuda)
target_link_libraries(crl_cli PUBLIC crl_cuda)
target_compile_definitions(crl_cli PRIVATE CRL_WITH_CUDA=1)
