// Input larger, deeper and further out of range than anybody means, through the command: it ends by itself with field, value and
// remedy.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/cli/testing/lego_process.h"

namespace legoai {
namespace {

using cli::testing::Write;

class BadInputSize : public cli::testing::LegoTest {
 protected:
  void ExpectRecipeRefused(const std::string& text, const std::vector<std::string>& parts) {
    Write(Path("other.toml"), text);
    ExpectError({"train", Path("other.toml")}, 2, parts);
  }
  static std::string Times(int count, const std::string& text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  }
};

TEST_F(BadInputSize, RecipesNestedWithoutEnd) {
  for (const int levels : {10'000, 100'000}) {
    const std::vector<std::string> parts = {"other.toml: line 1: is nested deeper than 100 levels"};
    ExpectRecipeRefused("a" + Times(levels, ".a") + " = 1\n", parts);
    ExpectRecipeRefused("[a" + Times(levels, ".a") + "]\n", parts);
    ExpectRecipeRefused("a = " + Times(levels, "[") + Times(levels, "]") + "\n", parts);
    ExpectRecipeRefused("a = " + Times(levels, "{a=") + "1" + Times(levels, "}") + "\n", parts);
  }
}

TEST_F(BadInputSize, ManyUnknownKeys) {
  std::string toml = Recipe("");
  std::string json = "{\"architectures\": [\"LlamaForCausalLM\"]";
  for (int i = 0; i < 50'000; ++i) {
    toml += "key" + std::to_string(i) + " = 1\n";
    json += ", \"key" + std::to_string(i) + "\": 1";
  }
  ExpectRecipeRefused(toml, {"at least 50 faults:", "key0 = 1: unknown key; the nearest known one is "});
  Write(Path("keys.json"), json + "}");
  ExpectError({"train", Path("recipe.toml"), "--model=" + Path("keys.json")}, 2, {"keys.json", "vocab_size: is missing"});
}

TEST_F(BadInputSize, NumbersBeyond64Bits) {
  const std::string range = ": is too large: must lie between -9223372036854775808 and 9223372036854775807";
  ExpectRecipeRefused("[training]\nsteps = 99999999999999999999\n",
                      {"other.toml: training.steps = 99999999999999999999" + range});
  ExpectError({"train", Path("recipe.toml"), "--training.steps=9223372036854775808"}, 2,
              {"training.steps = 9223372036854775808" + range});
  ExpectError({"train", Path("recipe.toml"), "--nproc=99999999999999999999"}, 2,
              {"--nproc = 99999999999999999999: is too large: must lie between 1 and 65536"});
  ExpectError({"train", Path("recipe.toml"), "--nproc=9223372036854775807"}, 2, {"--nproc = 9223372036854775807: is too large"});
  ExpectError({"plan", "--cluster=cpu:1x1", "--recipe=" + Path("recipe.toml"), "--global-batch=99999999999999999999"}, 2,
              {"--global-batch = 99999999999999999999: is too large"});
  ExpectError({"simulate", "--cluster=cpu:99999999999999999999x1", "--recipe=" + Path("recipe.toml")}, 2,
              {"--cluster = cpu:99999999999999999999x1", "at most 65536 devices in a node"});
  Write(Path("large.json"), R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 99999999999999999999})");
  ExpectError({"train", Path("recipe.toml"), "--model=" + Path("large.json")}, 2,
              {"vocab_size = 1e+20", "must be a whole number between 1 and 1000000000"});
}

// Their product is 2^64.
TEST_F(BadInputSize, DegreesWhoseProductWrapsAround) {
  ExpectError({"train", Path("recipe.toml"), "--parallelism.data_parallel_replicate_degree=536870912",
               "--parallelism.tensor_parallel_degree=536870912", "--parallelism.pipeline_parallel_degree=64"},
              2, {"parallelism: its degrees ask for more than 65536 ranks"});
}

}  // namespace
}  // namespace legoai
