#include "core/process/build_version.h"

#include <gtest/gtest.h>

#include <regex>

namespace legoai::launch {
namespace {

TEST(BuildVersion, IsReleaseAndDigest) {
  const std::string version(BuildVersion());
  EXPECT_TRUE(std::regex_match(version, std::regex(R"(\d+\.\d+\.\d+\+[0-9a-f]{12})"))) << version;
}

}  // namespace
}  // namespace legoai::launch
