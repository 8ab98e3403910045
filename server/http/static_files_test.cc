#include "server/http/static_files.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"

namespace legoai::server {
namespace {

namespace fs = std::filesystem;

class StaticFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_ / "web/assets");
    Write("web/index.html", "<!doctype html>");
    Write("web/assets/app-1234.js", "let x;");
    Write("secret.txt", "secret");
  }
  void Write(const std::string& name, const std::string& content) { std::ofstream(root_ / name) << content; }

  fs::path root_;
};

TEST_F(StaticFilesTest, FindsFilesWithTypeAndCaching) {
  ASSERT_OK_AND_ASSIGN(const auto files, StaticFiles::Load((root_ / "web").string()));
  const StaticFile* script = files.Find("/assets/app-1234.js");
  ASSERT_NE(script, nullptr);
  EXPECT_EQ(script->content, "let x;");
  EXPECT_EQ(script->type, "text/javascript; charset=utf-8");
  EXPECT_NE(script->cache_control.find("immutable"), std::string::npos);
  const StaticFile* index = files.Find("/");
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(index->cache_control, "no-cache");
  EXPECT_NE(index->etag, script->etag);
  EXPECT_EQ(files.Find("/jobs/01J"), index);
}

TEST_F(StaticFilesTest, NothingOutsideIsReached) {
  fs::create_symlink(root_ / "secret.txt", root_ / "web/link.txt");
  ASSERT_OK_AND_ASSIGN(const auto files, StaticFiles::Load((root_ / "web").string()));
  for (const char* path : {"/../secret.txt", "/assets/../../secret.txt", "/link.txt", "/assets/../index.html", "//secret.txt",
                           "/..%2fsecret.txt", "/app.js"}) {
    EXPECT_EQ(files.Find(path), nullptr) << path;
  }
}

TEST_F(StaticFilesTest, AFolderWithoutAPageIsRefusedByFlag) {
  for (const std::string& folder : {(root_ / "nothing").string(), (root_ / "web/assets").string()}) {
    const auto violation = GetFieldViolation(StaticFiles::Load(folder).status());
    ASSERT_TRUE(violation) << folder;
    EXPECT_EQ(violation->field(), "--web");
    EXPECT_EQ(violation->value(), folder);
  }
}

}  // namespace
}  // namespace legoai::server
