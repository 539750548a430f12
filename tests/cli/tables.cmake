# SPDX-License-Identifier: Apache-2.0
# Published tables and their predictions: test_cli holds them to a tenth, bench_tables prints them.
add_library(test_tables STATIC cli/tables_megatron.cc cli/tables_gpipe.cc)
target_link_libraries(test_tables PUBLIC crl_cli)
target_compile_definitions(test_tables PRIVATE CRL_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(test_cli PRIVATE test_tables)
