# SPDX-License-Identifier: Apache-2.0
# The MPI transport's conformance: needs processes, so it is a program of its own under mpirun.
find_program(CRL_MPIRUN NAMES mpirun mpiexec)
if(CRL_MPI_TARGET AND CRL_MPIRUN)
    add_executable(comm_mpi_conformance ${CMAKE_CURRENT_LIST_DIR}/mpi_conformance.cc
                                        ${CMAKE_CURRENT_LIST_DIR}/conformance_test.cc)
    target_link_libraries(comm_mpi_conformance PRIVATE crl_comm GTest::gtest)

    set(mpirun ${CRL_MPIRUN} --oversubscribe --mca pml ob1)
    set(shared --mca btl self,vader,tcp)
    set(no_eager --mca btl_vader_eager_limit 128 --mca btl_tcp_eager_limit 128
                 --mca btl_self_eager_limit 128)
    set(tcp --mca btl self,tcp)

    # crl_mpi_test(name command...): must end with 0. Each has its own folder for Open MPI's sessions,
    # since several mpirun that begin and end at once make and remove the common one under each
    # other; its name is short because sockets are made in it.
    function(crl_mpi_test name)
        string(MD5 folder ${name})
        string(SUBSTRING ${folder} 0 6 folder)
        set(folder ${CMAKE_BINARY_DIR}/mpi/${folder})
        file(MAKE_DIRECTORY ${folder})
        add_test(NAME CommMpi.${name} COMMAND ${ARGN})
        set_tests_properties(CommMpi.${name} PROPERTIES TIMEOUT 120 ENVIRONMENT
            "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_orte_tmpdir_base=${folder}")
    endfunction()
    # crl_mpi_fails(name pattern command...): must end with a failure and say `pattern`
    function(crl_mpi_fails name pattern)
        crl_mpi_test(${name} sh ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/fails.sh ${pattern} ${ARGN})
    endfunction()

    set(program $<TARGET_FILE:comm_mpi_conformance>)
    foreach(ranks 1 2 3 4)
        crl_mpi_test(SharedMemory.${ranks} ${mpirun} ${shared} -n ${ranks} ${program})
        crl_mpi_test(NoEager.${ranks} ${mpirun} ${shared} ${no_eager} -n ${ranks} ${program})
    endforeach()
    crl_mpi_test(Tcp.3 ${mpirun} ${tcp} -n 3 ${program})
    crl_mpi_test(TcpNoEager.3 ${mpirun} ${tcp} ${no_eager} -n 3 ${program})
    crl_mpi_test(WithoutMpirun ${program})
    # UCX takes tags below 2^23 only.
    find_program(CRL_OMPI_INFO NAMES ompi_info)
    if(CRL_OMPI_INFO AND NOT CRL_SANITIZE)
        execute_process(COMMAND ${CRL_OMPI_INFO} --parsable OUTPUT_VARIABLE info)
        if(info MATCHES "mca:pml:ucx:")
            set(ucx ${CMAKE_COMMAND} -E env UCX_TLS=self,sm,tcp ${CRL_MPIRUN} --oversubscribe
                    --mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -n 3)
            crl_mpi_test(SmallTags.3 ${ucx} ${program})
            crl_mpi_fails(TagTooLarge
                          "rank 1 ended with: unsupported: mpi: tag .*expected at most 8388607"
                          ${ucx} ${program} tag 1)
        endif()
    endif()

    set(run ${mpirun} ${shared} -n 3 ${program})
    set(run_no_eager ${mpirun} ${shared} ${no_eager} -n 3 ${program})
    crl_mpi_fails(FailureIsReported "rank 2 ended with: i/o error: disk 2 is full" ${run} fail 2)
    crl_mpi_fails(FailureIsReportedNoEager "rank 0 ended with: i/o error: disk 0 is full"
                  ${run_no_eager} fail 0)
    # mpirun must not end the others before they can speak; but then it ends with 0
    string(REPLACE ";" " " patient
           "${mpirun};${shared};--mca;orte_abort_on_non_zero_status;0;-n;3")
    crl_mpi_fails(FailureReachesAll "rank 0 ended with: i/o error: disk 2 is full"
                  sh -c "${patient} ${program} fail 2 && false")
    crl_mpi_fails(ShorterReceive "rank 1 ended with: .*sent 5 bytes, the receive expects 3"
                  ${run} sizes 3)
    crl_mpi_fails(LongerReceive "rank 1 ended with: .*sent 5 bytes, the receive expects 8"
                  ${run} sizes 8)
    crl_mpi_fails(StalledRankIsNamed "rank [02] ended with: timeout: .*rank 1 does not answer"
                  ${run} stall 1)
    crl_mpi_fails(StalledFirstRank "rank [12] ended with: timeout: .*rank 0 does not answer"
                  ${run_no_eager} stall 0)
    crl_mpi_fails(KilledRank "signal 9" ${run} kill 1)
    crl_mpi_fails(ExitInsideTheJob "." ${run} exit 1)
    # the endpoint, the control channel, the first block of requests
    foreach(allocation 1 3 7)
        crl_mpi_fails(FailingAllocation.${allocation} "rank 1 ended with: out of memory" ${run}
                      nomem ${allocation})
    endforeach()
    crl_mpi_fails(OthersLearnThatARankCannotStart
                  "rank [02] ended with: aborted: mpi: rank 1 could not start" ${run} nomem 3)
    crl_mpi_fails(WrongNumberOfRanks "mpi: the job has 3 ranks .mpirun -n., expected 4"
                  ${run} ranks)
endif()
