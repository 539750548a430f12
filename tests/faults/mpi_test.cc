// SPDX-License-Identifier: Apache-2.0
// A process of an MPI run is killed or stopped in the middle: mpirun ends with a failure, nobody is
// left, and the output names the rank.
#include <gtest/gtest.h>
#include <signal.h>

#include <sstream>

#include "tests/layouts/job.h"

namespace {

using job::Sets;
using job::Width;

// A command whose output is read while it runs.
class Running {
  public:
    explicit Running(const std::string &command) {
        int end[2];
        EXPECT_EQ(pipe(end), 0);
        pid_ = fork();
        if (pid_ == 0) {
            dup2(end[1], 1);
            dup2(end[1], 2);
            close(end[0]);
            close(end[1]);
            alarm(60); // survives exec: nothing of this test stays for longer
            execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
            _exit(127);
        }
        close(end[1]);
        from_ = end[0];
    }
    ~Running() {
        close(from_);
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
    }
    Running(const Running &) = delete;
    Running &operator=(const Running &) = delete;

    // Reads until `text` has been printed; false at the end of the output.
    bool ReadUntil(const std::string &text) {
        while (printed_.find(text) == std::string::npos) {
            char part[4096];
            const ssize_t n = read(from_, part, sizeof part);
            if (n <= 0) {
                return false;
            }
            printed_.append(part, size_t(n));
        }
        return true;
    }
    // Reads to the end; the exit code, 128 + n for signal n.
    int Wait() {
        ReadUntil(std::string(1, '\0'));
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    const std::string &printed() const { return printed_; }

    // The process that is rank `rank`: one of this command's own children. -1: not found.
    pid_t Rank(int rank) const {
        const std::string wanted = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
        const std::string task = "/proc/" + std::to_string(pid_) + "/task/";
        for (const auto &entry : std::filesystem::directory_iterator(task)) {
            std::istringstream children(read_text(entry.path().string() + "/children"));
            for (pid_t child; children >> child;) {
                const std::string environment =
                    read_text("/proc/" + std::to_string(child) + "/environ");
                if (environment.find(wanted + '\0') != std::string::npos) {
                    return child;
                }
            }
        }
        return -1;
    }

  private:
    pid_t pid_ = -1;
    int from_ = -1;
    std::string printed_;
};

class FaultsMpi : public testing::Test {
  protected:
    void SetUp() override {
#ifndef CRL_WITH_MPI
        GTEST_SKIP() << "built without MPI";
#endif
        if (job::Shell("command -v mpirun").code != 0) {
            GTEST_SKIP() << "mpirun is not there (Debian: openmpi-bin)";
        }
    }

    // Sends `signal` to rank `rank` of 2 x 2 after a few steps; what was printed after that.
    std::string Hit(int rank, int signal, int *out_code) {
        const Sets sets = job::Gpt(scratch_) + Width(2, 2) +
                          Sets{{"train.steps", "1000000"}, {"comm.deadline", "2"}};
        Running run("env " + std::string(job::MpirunEnvironment()) +
                    job::Mpirun(4, "--mca pml ob1 --mca btl self,vader,tcp") +
                    job::Command(sets, scratch_ / "config.yaml"));
        EXPECT_TRUE(run.ReadUntil("step 3/")) << run.printed();
        const size_t before = run.printed().size();
        const pid_t process[] = {run.Rank(0), run.Rank(1), run.Rank(2), run.Rank(3)};
        for (const pid_t one : process) {
            EXPECT_GT(one, 0) << run.printed();
            if (one <= 0) {
                return "";
            }
        }
        EXPECT_EQ(kill(process[rank], signal), 0);
        *out_code = run.Wait();
        for (const pid_t one : process) { // one that has ended has no environment
            EXPECT_EQ(read_text("/proc/" + std::to_string(one) + "/environ"), "");
        }
        return run.printed().substr(before);
    }

    Scratch scratch_;
};

TEST_F(FaultsMpi, KilledProcessEndsTheJob) {
    for (int rank : {0, 3}) {
        int code = 0;
        const std::string printed = Hit(rank, SIGKILL, &code);
        EXPECT_NE(code, 0);
        EXPECT_NE(printed.find("rank " + std::to_string(rank)), std::string::npos) << printed;
    }
}

TEST_F(FaultsMpi, StoppedProcessEndsTheJob) {
    for (int rank : {0, 2}) {
        int code = 0;
        const std::string printed = Hit(rank, SIGSTOP, &code);
        EXPECT_NE(code, 0);
        EXPECT_NE(code, 128 + SIGALRM) << "still there after a minute";
        EXPECT_NE(printed.find("rank " + std::to_string(rank) + " does not answer"),
                  std::string::npos)
            << printed;
    }
}

} // namespace
