# SPDX-License-Identifier: Apache-2.0
# test_nccl         the NCCL wire over NCCL on the CPU, on a device of the tests' own
# test_wire_on_cuda all wires on the emulated CUDA device
file(GLOB wire CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/engine/comm/nccl*.c)
add_executable(test_nccl comm/nccl_late.cc cuda_on_cpu/nccl.cc ${wire}
               ${CMAKE_SOURCE_DIR}/engine/device/cuda_library.c)
target_include_directories(test_nccl BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/cuda_on_cpu/include)
# Symbols of the library are looked for in the program itself.
target_compile_definitions(test_nccl PRIVATE CRL_CUDA_LIBRARIES_SELF=1)
set_target_properties(test_nccl PROPERTIES ENABLE_EXPORTS ON)
target_link_libraries(test_nccl PRIVATE crl_comm GTest::gtest GTest::gtest_main ${CMAKE_DL_LIBS})
gtest_discover_tests(test_nccl DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120)

if(TARGET crl_cuda_on_cpu)
    add_executable(test_wire_on_cuda comm/wire_on_cuda.cc ${wire})
    set_target_properties(test_wire_on_cuda PROPERTIES ENABLE_EXPORTS ON)
    target_link_libraries(test_wire_on_cuda PRIVATE crl_cuda_on_cpu crl_comm GTest::gtest
                                                    GTest::gtest_main)
    gtest_discover_tests(test_wire_on_cuda DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120)
endif()
