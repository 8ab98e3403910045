#include "core/process/data_roots.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/errors.h"

namespace legoai::launch {
namespace {

namespace fs = std::filesystem;

// allowed/ and also/ are roots; what lies beside them is not for jobs.
class DataRootsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    for (const char* file : {"allowed/text.txt", "allowed/deep/weights/model.safetensors", "also/tokenizer.model",
                             "allowed-not/text.txt", "secret/text.txt"}) {
      fs::create_directories(fs::path(At(file)).parent_path());
      std::ofstream(At(file)) << "x";
    }
    recipe_.mutable_training()->set_dataset_path(At("allowed/text.txt"));
    recipe_.mutable_model()->set_tokenizer_path("byte");
  }
  std::string At(const std::string& path) const { return folder_ + "/" + path; }

  // The field that is refused; empty: all may be read.
  std::string Refused() const {
    const absl::Status status = CheckDataRoots(recipe_, roots_);
    const auto violation = GetFieldViolation(status);
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_NE(status.message().find("--data_roots"), std::string::npos) << status;
    return violation ? violation->field() : status.ToString();
  }
  std::string RefusedText(const std::string& path) {
    recipe_.mutable_training()->set_dataset_path(path);
    return Refused();
  }

  const std::string folder_ = ::testing::TempDir() + "/data_roots_test";
  std::vector<std::string> roots_ = {At("allowed"), At("also/")};
  v1::Recipe recipe_;
};

constexpr char kText[] = "training.dataset_path";

TEST_F(DataRootsTest, EveryFileOfAJobLiesInARoot) {
  EXPECT_EQ(Refused(), "");
  recipe_.mutable_model()->set_tokenizer_path(At("also/tokenizer.model"));
  recipe_.mutable_model()->set_initial_load_path(At("allowed/deep/weights"));
  EXPECT_EQ(Refused(), "");
  EXPECT_EQ(RefusedText("file://" + At("allowed/text.txt")), "");
  recipe_.mutable_model()->set_initial_load_path(At("secret"));
  EXPECT_EQ(Refused(), "model.initial_load_path");
  recipe_.mutable_model()->set_tokenizer_path(At("secret/text.txt"));
  EXPECT_EQ(Refused(), "model.tokenizer_path");
  EXPECT_EQ(RefusedText(At("secret/text.txt")), kText);
  EXPECT_EQ(RefusedText("file://" + At("secret/text.txt")), kText);
  EXPECT_EQ(RefusedText(At("allowed-not/text.txt")), kText) << "a name that begins alike";
}

TEST_F(DataRootsTest, NoWayAroundLeadsOut) {
  EXPECT_EQ(RefusedText(At("allowed/../secret/text.txt")), kText);
  EXPECT_EQ(RefusedText(At("allowed/not-there/../../secret/text.txt")), kText);
  EXPECT_EQ(RefusedText(At("allowed/../allowed/text.txt")), "");
  fs::create_symlink("../secret/text.txt", At("allowed/link.txt"));
  fs::create_directory_symlink(At("secret"), At("allowed/folder"));
  EXPECT_EQ(RefusedText(At("allowed/link.txt")), kText);
  EXPECT_EQ(RefusedText(At("allowed/folder/text.txt")), kText);
  EXPECT_EQ(RefusedText(At("allowed/folder/not-there.txt")), kText);
  fs::create_symlink("loop", At("allowed/loop"));
  EXPECT_EQ(RefusedText(At("allowed/loop")), kText);
  // Into a root, and a root that is itself reached by a link.
  fs::create_symlink("../also/tokenizer.model", At("secret/in.txt"));
  EXPECT_EQ(RefusedText(At("secret/in.txt")), "");
  fs::create_directory_symlink(At("secret"), At("link-to-secret"));
  roots_ = {At("link-to-secret")};
  EXPECT_EQ(RefusedText(At("secret/text.txt")), "");
}

TEST_F(DataRootsTest, WeightsAreAllFilesOfTheirFolder) {
  recipe_.mutable_model()->set_initial_load_path(At("allowed/deep/weights"));
  fs::create_symlink(At("also/tokenizer.model"), At("allowed/deep/weights/a.safetensors"));
  EXPECT_EQ(Refused(), "");
  fs::create_symlink(At("secret/text.txt"), At("allowed/deep/weights/b.safetensors"));
  EXPECT_EQ(Refused(), "model.initial_load_path");
  recipe_.mutable_model()->set_initial_load_path(At("allowed/deep/weights/b.safetensors"));
  EXPECT_EQ(Refused(), "model.initial_load_path") << "one file";
}

TEST_F(DataRootsTest, WhetherAFileIsThereIsNotTold) {
  const auto message = [&](const std::string& name) {
    recipe_.mutable_training()->set_dataset_path(name);
    std::string text(CheckDataRoots(recipe_, roots_).message());
    return text.replace(text.find(name), name.size(), "NAME");
  };
  EXPECT_EQ(message(At("secret/text.txt")), message(At("secret/none.txt")));
  EXPECT_EQ(RefusedText(At("allowed/none.txt")), "") << "who opens it says that it is not there";
}

TEST_F(DataRootsTest, WithoutRootsNothingIsRead) {
  roots_ = {};
  EXPECT_EQ(Refused(), kText);
  roots_ = {At("later")};
  EXPECT_EQ(Refused(), kText);
  roots_ = {"/"};
  EXPECT_EQ(Refused(), "");
}

TEST_F(DataRootsTest, TheDefaultIsTheWorkingFolderUnlessThatIsEverything) {
  const fs::path before = fs::current_path();
  fs::current_path(At("allowed"));
  roots_ = DefaultDataRoots();
  EXPECT_EQ(RefusedText("text.txt"), "");
  EXPECT_EQ(RefusedText("../secret/text.txt"), kText);
  fs::current_path("/");
  EXPECT_EQ(RefusedText(At("secret/text.txt")), kText);
  EXPECT_TRUE(DefaultDataRoots().empty());
  fs::current_path(before);
}

}  // namespace
}  // namespace legoai::launch
