# SPDX-License-Identifier: Apache-2.0
# The NCCL wire (engine/comm/nccl*.c), wherever the CUDA backend and NCCL's header are; the library
# itself is opened when the wire is first asked for.
#   crl_nccl  static library of those files, which crl_comm brings with it
set(CRL_NCCL_TARGET "")
if(CRL_WITH_NCCL STREQUAL "OFF")
    return()
endif()
if(TARGET crl_cuda_library)
    find_path(CRL_NCCL_INCLUDE nccl.h HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS ${CRL_CUDA_INCLUDE}
              PATH_SUFFIXES include)
endif()
if(NOT TARGET crl_cuda_library OR NOT CRL_NCCL_INCLUDE)
    if(CRL_WITH_NCCL STREQUAL "ON")
        message(FATAL_ERROR "CRL_WITH_NCCL=ON, but no nccl.h with a CUDA backend was found")
    endif()
    return()
endif()
message(STATUS "NCCL: ${CRL_NCCL_INCLUDE}/nccl.h")

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/engine/comm/nccl*.c)
add_library(crl_nccl STATIC ${sources})
target_include_directories(crl_nccl SYSTEM PRIVATE ${CRL_NCCL_INCLUDE} ${CRL_CUDA_INCLUDE})
target_link_libraries(crl_nccl PUBLIC crl_flags crl_comm
                      PRIVATE crl_cuda_library ${CRL_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt)
set(CRL_NCCL_TARGET crl_nccl)
