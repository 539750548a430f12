# SPDX-License-Identifier: Apache-2.0
# The NCCL wire (engine/comm/nccl*.c), wherever NCCL's and CUDA's headers and the static CUDA runtime
# are; the library itself is opened when the wire is first asked for (engine/device/cuda_library.h).
#   crl_nccl  static library of those files, which crl_comm brings with it
set(CRL_NCCL_TARGET "")
if(CRL_WITH_NCCL STREQUAL "OFF" OR CRL_WITH_CUDA STREQUAL "OFF" OR
   (CRL_WITH_NCCL STREQUAL "AUTO" AND CRL_SANITIZE))
    return()
endif()
set(hints ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda)
find_path(CRL_NCCL_INCLUDE nccl.h HINTS ${hints} PATH_SUFFIXES include)
find_path(CRL_NCCL_CUDA_INCLUDE cuda_runtime_api.h HINTS ${hints} PATH_SUFFIXES include)
find_library(CRL_NCCL_CUDART cudart_static HINTS ${hints} PATH_SUFFIXES lib64 lib)
if(NOT CRL_NCCL_INCLUDE OR NOT CRL_NCCL_CUDA_INCLUDE OR NOT CRL_NCCL_CUDART)
    if(CRL_WITH_NCCL STREQUAL "ON")
        message(FATAL_ERROR "CRL_WITH_NCCL=ON, but no NCCL with CUDA's runtime was found")
    endif()
    return()
endif()
message(STATUS "NCCL: ${CRL_NCCL_INCLUDE}/nccl.h")

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/engine/comm/nccl*.c)
add_library(crl_nccl STATIC ${sources} ${CMAKE_SOURCE_DIR}/engine/device/cuda_library.c)
target_include_directories(crl_nccl SYSTEM PRIVATE ${CRL_NCCL_INCLUDE} ${CRL_NCCL_CUDA_INCLUDE})
cmake_path(GET CRL_NCCL_CUDART PARENT_PATH folder)
target_compile_definitions(crl_nccl PRIVATE CRL_CUDA_LIBRARY_FOLDER="${folder}")
target_link_libraries(crl_nccl PUBLIC crl_flags crl_comm
                      PRIVATE ${CRL_NCCL_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt)
set(CRL_NCCL_TARGET crl_nccl)
