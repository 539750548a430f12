// SPDX-License-Identifier: Apache-2.0
#include "engine/base/file.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "engine/base/alloc.h"

namespace {

namespace fs = std::filesystem;

class BaseFile : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/crl_file_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder = name;
    }
    void TearDown() override { EXPECT_EQ(crl_file_remove(folder.c_str()), CRL_STATUS_OK); }
    std::string Path(const char *name) const { return folder + "/" + name; }
    std::string folder;
};

TEST_F(BaseFile, WritesAndReadsBack) {
    const std::string content("a\0b\n", 4), path = Path("x.bin");
    ASSERT_EQ(crl_file_write_atomic(path.c_str(), "old content", 11), CRL_STATUS_OK);
    ASSERT_EQ(crl_file_write_atomic(path.c_str(), content.data(), content.size()), CRL_STATUS_OK);
    char *text = nullptr;
    size_t bytes = 0;
    ASSERT_EQ(crl_file_read(&text, &bytes, path.c_str(), 4), CRL_STATUS_OK);
    EXPECT_EQ(std::string(text, bytes), content);
    EXPECT_EQ(text[bytes], '\0');
    crl_free(text);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1); // no temporary is left
}

TEST_F(BaseFile, RefusesWhatIsNoFile) {
    char *text = nullptr;
    size_t bytes = 0;
    EXPECT_EQ(crl_file_read(&text, &bytes, Path("none").c_str(), 10), CRL_STATUS_NOT_FOUND);
    EXPECT_EQ(crl_error_message(), Path("none") + ": no such file");
    EXPECT_EQ(crl_file_read(&text, &bytes, folder.c_str(), 10), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_error_message(), folder + ": is a directory, expected a regular file");
    ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
    EXPECT_EQ(crl_file_read(&text, &bytes, Path("pipe").c_str(), 10), CRL_STATUS_INVALID);
    ASSERT_EQ(crl_file_write_atomic(Path("big").c_str(), "12345", 5), CRL_STATUS_OK);
    EXPECT_EQ(crl_file_read(&text, &bytes, Path("big").c_str(), 4), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_error_message(), Path("big") + ": is 5 bytes long, expected at most 4");
    EXPECT_EQ(text, nullptr);
}

TEST_F(BaseFile, ReadsAPartOfAnOpenFile) {
    const std::string path = Path("x.bin");
    ASSERT_EQ(crl_file_write_atomic(path.c_str(), "0123456789", 10), CRL_STATUS_OK);
    int file = -1;
    struct stat facts = {};
    ASSERT_EQ(crl_file_open(&file, &facts, path.c_str()), CRL_STATUS_OK);
    EXPECT_EQ(facts.st_size, 10);
    char text[4] = "";
    EXPECT_EQ(crl_file_read_at(file, path.c_str(), text, 3, 6), CRL_STATUS_OK);
    EXPECT_STREQ(text, "678");
    EXPECT_EQ(crl_file_read_at(file, path.c_str(), text, 3, 8), CRL_STATUS_IO);
    EXPECT_EQ(crl_error_message(), path + ": ends at byte 10, expected 11 bytes or more");
    close(file);
    EXPECT_TRUE(crl_file_name_ends(path.c_str(), ".bin"));
    EXPECT_FALSE(crl_file_name_ends("bin", ".bin"));
}

TEST_F(BaseFile, AFailedWriteLeavesTheOldContent) {
    ASSERT_EQ(crl_file_make_directory(Path("taken/inside").c_str()), CRL_STATUS_OK);
    EXPECT_EQ(crl_file_write_atomic(Path("taken").c_str(), "x", 1), CRL_STATUS_IO);
    EXPECT_TRUE(fs::is_directory(Path("taken/inside")));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
    EXPECT_EQ(crl_file_write_atomic(Path("no/where").c_str(), "x", 1), CRL_STATUS_NOT_FOUND);
}

TEST_F(BaseFile, MakesDirectoriesWithTheirParents) {
    EXPECT_EQ(crl_file_make_directory(Path("a/b//c/").c_str()), CRL_STATUS_OK);
    EXPECT_EQ(crl_file_make_directory(Path("a/b/c").c_str()), CRL_STATUS_OK);
    EXPECT_TRUE(fs::is_directory(Path("a/b/c")));
    ASSERT_EQ(crl_file_write_atomic(Path("a/f").c_str(), "", 0), CRL_STATUS_OK);
    EXPECT_EQ(crl_file_make_directory(Path("a/f").c_str()), CRL_STATUS_INVALID);
    EXPECT_NE(crl_file_make_directory(Path("a/f/g").c_str()), CRL_STATUS_OK);
}

TEST_F(BaseFile, RemovesTreesButNotWhatLinksPointTo) {
    ASSERT_EQ(crl_file_make_directory(Path("kept").c_str()), CRL_STATUS_OK);
    ASSERT_EQ(crl_file_write_atomic(Path("kept/x").c_str(), "x", 1), CRL_STATUS_OK);
    ASSERT_EQ(crl_file_make_directory(Path("gone/deep").c_str()), CRL_STATUS_OK);
    ASSERT_EQ(symlink(Path("kept").c_str(), Path("gone/deep/link").c_str()), 0);
    EXPECT_EQ(crl_file_remove(Path("gone").c_str()), CRL_STATUS_OK);
    EXPECT_FALSE(fs::exists(Path("gone")));
    EXPECT_TRUE(fs::exists(Path("kept/x")));
    EXPECT_EQ(crl_file_remove(Path("gone").c_str()), CRL_STATUS_OK);
}

TEST_F(BaseFile, RenamesDirectories) {
    ASSERT_EQ(crl_file_make_directory(Path("step-5.tmp").c_str()), CRL_STATUS_OK);
    EXPECT_EQ(crl_file_sync(Path("step-5.tmp").c_str()), CRL_STATUS_OK);
    EXPECT_EQ(crl_file_rename(Path("step-5.tmp").c_str(), Path("step-5").c_str()), CRL_STATUS_OK);
    EXPECT_TRUE(fs::is_directory(Path("step-5")));
    EXPECT_EQ(crl_file_rename(Path("none").c_str(), Path("x").c_str()), CRL_STATUS_NOT_FOUND);
}

TEST_F(BaseFile, NothingLeaksWithoutMemory) {
    ASSERT_EQ(crl_file_write_atomic(Path("x").c_str(), "x", 1), CRL_STATUS_OK);
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    char *text = nullptr;
    size_t bytes = 0;
    for (int n = 1; n <= 2; ++n) {
        watch.fail_at = n;
        EXPECT_EQ(crl_file_write_atomic(Path("x").c_str(), "y", 1), CRL_STATUS_NOMEM);
    }
    watch.fail_at = 1;
    EXPECT_EQ(crl_file_read(&text, &bytes, Path("x").c_str(), 10), CRL_STATUS_NOMEM);
    crl_alloc_attach(nullptr);
    EXPECT_EQ(watch.live_bytes, 0);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

} // namespace
