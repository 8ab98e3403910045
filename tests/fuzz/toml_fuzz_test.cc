// Recipes as TOML: what is accepted says the same when it is written and read again, and reading all that is wrong finds
// something exactly where reading the first does.
#include <gtest/gtest.h>

#include "core/recipe/recipe.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/toml/toml.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

void ExpectSame(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  EXPECT_EQ(a.DebugString(), b.DebugString());
}

absl::Status Parse(const std::string& text) {
  v1::Recipe first, all, again;
  const absl::Status status = ParseToml(text, &first);
  const std::vector<absl::Status> faults = ReadToml(text, &all);
  EXPECT_EQ(status.ok(), faults.empty());
  for (const absl::Status& fault : faults) EXPECT_FALSE(fault.ok() || fault.message().empty());
  const auto recipe = parallel::ParseRecipe(text, {});
  EXPECT_FALSE(recipe.ok() && !status.ok()) << "accepted with a fault";
  if (!status.ok()) return status;
  ExpectSame(first, all);
  EXPECT_TRUE(ParseToml(ToToml(first), &again).ok()) << ToToml(first);
  ExpectSame(first, again);
  if (!recipe.ok()) return recipe.status();
  const auto written = parallel::ParseRecipe(parallel::RecipeToToml(*recipe), {});
  EXPECT_TRUE(written.ok()) << written.status();
  if (written.ok()) ExpectSame(*recipe, *written);
  return absl::OkStatus();
}

TEST(Fuzz, Toml) {
  Fuzz(
      {"toml",
       Words("[|]|[[|]]|{|}|=|.|,|\"|'|\"\"\"|'''|\\|\\u0000|\\U0010ffff|#|\n|true|1979-05-27T07:32:00Z|[training]|[parallelism]|"
             "training.|steps|seq_len|mode|name|-1|nan|inf|0x|0b1|1e5|\xff|\xc3\xa9|\r\n|\t"),
       Parse});
}

}  // namespace
}  // namespace legoai::fuzz
