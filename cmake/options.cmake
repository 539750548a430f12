# SPDX-License-Identifier: Apache-2.0
# What can be chosen at configure time, and the warnings everything is compiled with.
set(CRL_WITH_MPI AUTO CACHE STRING "Open MPI transport: AUTO, ON or OFF")
set(CRL_WITH_DNNL AUTO CACHE STRING "oneDNN for the CPU's products: AUTO, ON or OFF")
set(CRL_WITH_NCCL AUTO CACHE STRING "NCCL between GPUs: AUTO (where CUDA is), ON or OFF")
set(CRL_SANITIZE "" CACHE STRING "sanitizers, e.g. address,undefined or thread")
option(CRL_WERROR "warnings are errors" ON)

add_library(crl_flags INTERFACE)
target_compile_options(crl_flags INTERFACE -Wall -Wextra
    $<$<COMPILE_LANGUAGE:C>:-Wconversion -Wmissing-prototypes -Wstrict-prototypes>
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
    $<$<BOOL:${CRL_WERROR}>:-Werror>)
target_include_directories(crl_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_definitions(crl_flags INTERFACE _GNU_SOURCE)
if(CRL_SANITIZE)
    add_compile_options(-fsanitize=${CRL_SANITIZE} -fno-omit-frame-pointer -g)
    add_link_options(-fsanitize=${CRL_SANITIZE})
endif()
