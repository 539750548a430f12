# SPDX-License-Identifier: Apache-2.0
# CUDA's toolkit, which the CUDA backend (cuda.cmake) and the NCCL wire (nccl.cmake) are compiled with.
#   crl_cuda_library  opens cuBLASLt, cuDNN and NCCL when they are first asked for
set(CRL_WITH_CUDA AUTO CACHE STRING "CUDA backend: AUTO (not under sanitizers), ON or OFF")
if(CRL_WITH_CUDA STREQUAL "OFF" OR (CRL_WITH_CUDA STREQUAL "AUTO" AND CRL_SANITIZE))
    return()
endif()
find_program(CRL_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(CRL_NVCC)
    file(REAL_PATH ${CRL_NVCC} nvcc)
    cmake_path(GET nvcc PARENT_PATH bin)
    cmake_path(GET bin PARENT_PATH toolkit)
    find_library(CRL_CUDART cudart_static HINTS ${toolkit} PATH_SUFFIXES lib64 lib)
    find_path(CRL_CUDA_INCLUDE cuda_runtime.h HINTS ${toolkit}/include)
    find_path(CRL_CUBLASLT_INCLUDE cublasLt.h HINTS ${toolkit}/include)
endif()
if(NOT CRL_NVCC OR NOT CRL_CUDART OR NOT CRL_CUDA_INCLUDE OR NOT CRL_CUBLASLT_INCLUDE)
    if(CRL_WITH_CUDA STREQUAL "ON")
        message(FATAL_ERROR "CRL_WITH_CUDA=ON, but no nvcc with a static runtime and cublasLt.h was found")
    endif()
    return()
endif()

add_library(crl_cuda_library STATIC ${CMAKE_SOURCE_DIR}/engine/device/cuda_library.c)
target_link_libraries(crl_cuda_library PUBLIC crl_flags crl_base PRIVATE ${CMAKE_DL_LIBS})
# Looked into after the loader's own folders.
target_compile_definitions(crl_cuda_library PRIVATE CRL_CUDA_LIBRARY_FOLDER="${toolkit}/lib64")
