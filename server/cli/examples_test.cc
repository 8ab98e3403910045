// Every file of examples/, given to the command that takes it: an example that is not understood misleads.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "server/cli/testing/lego_process.h"

namespace legoai::cli {
namespace {

namespace fs = std::filesystem;
using testing::Json;
using testing::Result;

using Words = std::vector<std::string>;

class Examples : public testing::LegoTest {
 protected:
  // The text is made by a script from a package that need not be here.
  std::string Text() const { return "--training.dataset_path=" + Path("text.txt"); }
  std::string Folder() const { return "--job.dump_folder=" + Path("run"); }
  // `name`, beside the recipe of the examples, on as many ranks.
  Words Simulate(const std::string& cluster, int ranks) const {
    const std::string count = std::to_string(ranks);
    return {"simulate",
            "--recipe",
            "examples/recipe.toml",
            "--cluster",
            cluster,
            "--parallelism.data_parallel_shard_degree=" + count,
            "--training.global_batch_size=" + count,
            "--training.local_batch_size=1",
            "-o",
            "json"};
  }
};

TEST_F(Examples, EachIsUnderstoodByItsCommand) {
  const std::map<std::string, Words> commands = {
      // The layout is said here, so that nothing is planned.
      {"job.toml",
       {"train", "examples/job.toml", "--dry-run", "--nproc", "2", Text(), Folder(), "--training.local_batch_size=8"}},
      {"recipe.toml", {"train", "examples/recipe.toml", "--dry-run", Text(), Folder()}},
      {"cluster.txtpb", Simulate("examples/cluster.txtpb", 32)},
      {"device.txtpb", Simulate("examples/device.txtpb:2x1", 2)},
      {"tiny-llama/config.json",
       {"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:1x1", "--model", "examples/tiny-llama/config.json"}},
  };
  for (const auto& [name, words] : commands) {
    const Result result = Run(words);
    EXPECT_EQ(result.code, 0) << name << ": " << result.err;
  }
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator("examples")) {
    const std::string name = entry.path().lexically_relative("examples").string();
    if (entry.is_directory() || name == "BUILD" || name == "README.md" || name == "make_text.sh") continue;
    EXPECT_EQ(commands.count(name), 1u) << name << " is an example that no command is tried with";
    ++files;
  }
  EXPECT_EQ(files, static_cast<int>(commands.size()));
}

TEST_F(Examples, TheClustersSaySomethingOfTheirOwn) {
  const Json cluster = Json::parse(Run(Simulate("examples/cluster.txtpb", 32)).out);
  EXPECT_EQ(cluster["cluster"], "two racks of h100-sxm-80:8x2");
  EXPECT_EQ(cluster["world_size"], 32);
  EXPECT_EQ(Json::parse(Run(Simulate("examples/device.txtpb:2x1", 2)).out)["cluster"], "h100-nvl:2x1");
}

}  // namespace
}  // namespace legoai::cli
