#include "core/data/dataset_facts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "proto/errors.h"

namespace legoai::data {
namespace {

std::string WriteText(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& word) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.message().find(word), std::string::npos) << status;
  ASSERT_TRUE(GetFieldViolation(status).has_value());
  EXPECT_EQ(GetFieldViolation(status)->field(), "training.dataset_path");
}

TEST(DatasetFactsTest, FactsOfAPathAndOfAUri) {
  const std::string path = WriteText("facts.txt", "abc");
  for (const std::string& uri : {path, "file://" + path}) {
    const auto facts = DatasetFacts(uri).value();
    EXPECT_EQ(facts.uri(), uri);
    EXPECT_EQ(facts.bytes(), 3);
    EXPECT_EQ(facts.sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  }
}

TEST(DatasetFactsTest, WhatCannotBeTrainedOnIsRefused) {
  ExpectError(DatasetFacts("").status(), absl::StatusCode::kInvalidArgument, "not set");
  ExpectError(DatasetFacts("/no/such.txt").status(), absl::StatusCode::kNotFound, "/no/such.txt: no such file");
  ExpectError(DatasetFacts(testing::TempDir()).status(), absl::StatusCode::kInvalidArgument, "not a regular file");
  ExpectError(DatasetFacts(WriteText("empty.txt", "")).status(), absl::StatusCode::kInvalidArgument, "empty");
  ExpectError(DatasetFacts("s3://bucket/c4").status(), absl::StatusCode::kInvalidArgument, "'s3'");
  ExpectError(DatasetFacts("file://host/c4").status(), absl::StatusCode::kInvalidArgument, "names a host");
}

}  // namespace
}  // namespace legoai::data
