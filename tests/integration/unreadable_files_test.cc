// Whatever path is given where a command reads or writes a file - a folder, a device without an end, a pipe that nobody serves, a
// file that fails while it is read, one of terabytes - the command ends by itself, within bounded memory, with an error that
// names the path.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "server/cli/testing/lego_process.h"

namespace legoai {
namespace {

namespace fs = std::filesystem;
using cli::testing::Result;
using cli::testing::Write;

class UnreadableFiles : public cli::testing::LegoTest {
 protected:
  void SetUp() override {
    LegoTest::SetUp();
    fs::create_directories(Path("folder"));
    ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
    fs::create_symlink("circle", Path("circle"));
    Write(Path("huge"), "");
    ASSERT_EQ(truncate(Path("huge").c_str(), int64_t{4} << 40), 0);
  }

  // `lego` with 4 GB of address space; `environment` as "NAME=value".
  Result RunBounded(const std::vector<std::string>& words, const std::string& environment = "LEGOAI_TEST=1") const {
    std::vector<std::string> all = {"/bin/bash", "-c",        "ulimit -v 4000000; exec /usr/bin/env \"$@\"",
                                    "bounded",   environment, "server/cli/lego"};
    all.insert(all.end(), words.begin(), words.end());
    return Wait(StartProgram(all));
  }

  void ExpectRefusal(const Result& result, const std::string& path, const std::string& call) const {
    EXPECT_EQ(result.signal, 0) << call << "\n" << result.err;
    EXPECT_TRUE(result.code == 1 || result.code == 2) << call << " ended with " << result.code << "\n" << result.err;
    EXPECT_EQ(result.out, "") << call;
    EXPECT_NE(result.err.find(path), std::string::npos) << call << "\n" << result.err;
    EXPECT_EQ(result.err.find("unexpected"), std::string::npos) << call << "\n" << result.err;
  }

  // What stands for PATH in the words is each of `names` in turn.
  void ExpectRefusals(const std::vector<std::string>& names, const std::vector<std::string>& words) const {
    for (const std::string& name : names) {
      const std::string path = name[0] == '/' ? name : Path(name);
      std::vector<std::string> call = words;
      std::string text;
      for (std::string& word : call) {
        if (const size_t at = word.find("PATH"); at != std::string::npos) word.replace(at, 4, path);
        text += word + " ";
      }
      ExpectRefusal(RunBounded(call), path, text);
    }
  }

  const std::vector<std::string> devices_ = {"/dev/zero", "/dev/full", "pipe", "/proc/self/mem", "circle"};
  const std::vector<std::string> all_ = {"folder", "huge", "/dev/zero", "/dev/full", "pipe", "/proc/self/mem", "circle"};
};

TEST_F(UnreadableFiles, Recipes) {
  ExpectRefusals(all_, {"train", "PATH"});
  ExpectRefusals(all_, {"simulate", "--cluster=cpu:1x1", "--recipe=PATH"});
  ExpectRefusals(all_, {"plan", "--cluster=cpu:1x1", "--recipe=PATH"});
  ExpectRefusals(all_, {"submit", "PATH", "--server=127.0.0.1:1"});
}

TEST_F(UnreadableFiles, ModelsClustersAndThisMachine) {
  const std::string recipe = "--recipe=" + Path("recipe.toml");
  ExpectRefusals(all_, {"simulate", "--cluster=cpu:1x1", recipe, "--model=PATH"});
  ExpectRefusals(all_, {"simulate", "--cluster=PATH", recipe});
  for (const std::string name : {"/dev/zero", "/proc/self/mem", "/dev/full"}) {
    ExpectRefusal(RunBounded({"simulate", "--cluster=cpu:1x1", recipe}, "LEGOAI_HOST_DEVICE=" + name), name, "this machine");
  }
  for (const std::string name : {"folder", "huge", "pipe", "circle"}) {
    ExpectRefusal(RunBounded({"hardware"}, "LEGOAI_HOST_DEVICE=" + Path(name)), Path(name), "this machine");
  }
}

TEST_F(UnreadableFiles, TextsTokenizersAndWeights) {
  ExpectRefusals(all_, {"train", Path("recipe.toml"), "--model.tokenizer_path=PATH"});
  ExpectRefusals(all_, {"train", Path("recipe.toml"), "--model.initial_load_path=PATH"});
  // (A text of terabytes may be meant.)
  ExpectRefusals({"folder", "/dev/zero", "/dev/full", "pipe", "/proc/self/mem", "circle"},
                 {"train", Path("recipe.toml"), "--training.dataset_path=PATH"});
  for (const char* file : {"model.safetensors", "model.safetensors.index.json"}) {
    for (const std::string& name : all_) {
      const std::string weights = Path("weights"), path = weights + "/" + file;
      fs::remove_all(weights);
      fs::create_directories(weights);
      fs::create_symlink(name[0] == '/' ? name : Path(name), path);
      const Result result = RunBounded({"train", Path("recipe.toml"), "--model.initial_load_path=" + weights});
      ExpectRefusal(result, weights, path + " is " + name);
    }
  }
  EXPECT_FALSE(fs::exists(Path("run/run.json")));
}

TEST_F(UnreadableFiles, FlightRecords) {
  ExpectRefusals(all_, {"fr", "PATH"});
  ExpectRefusals(devices_, {"checkpoints", "PATH"});
}

TEST_F(UnreadableFiles, FilesOfARun) {
  const std::string step = Path("run/checkpoints/step-4");
  for (const std::string& name : all_) {
    const std::string target = name[0] == '/' ? name : Path(name);
    fs::remove_all(Path("run"));
    fs::create_directories(step);
    fs::create_symlink(target, Path("run/run.json"));
    const Result trained = RunBounded({"train", Path("recipe.toml"), "--nproc=1"});
    ExpectRefusal(trained, Path("run/run.json"), "run.json is " + name);

    fs::create_directories(step);
    fs::create_symlink(target, step + "/manifest.pb");
    const Result listed = RunBounded({"checkpoints", Path("run")});
    EXPECT_EQ(listed.signal, 0) << name;
    EXPECT_NE((listed.out + listed.err).find(step), std::string::npos) << name << ": " << listed.out << listed.err;
  }
}

TEST_F(UnreadableFiles, FilesToBeWritten) {
  const std::string recipe = "--recipe=" + Path("recipe.toml");
  const std::vector<std::string> names = {"folder", "/dev/zero", "/dev/full", "pipe", "circle"};
  ExpectRefusals(names, {"simulate", "--cluster=cpu:1x1", recipe, "--trace=PATH"});
  ExpectRefusals(names, {"simulate", "--cluster=cpu:1x1", recipe, "--memory-timeline=PATH"});
  ExpectRefusals(names, {"plan", "--cluster=cpu:1x1", recipe, "--out=PATH"});
  ExpectRefusals(names, {"hardware", "--measure", "--out=PATH"});
}

TEST_F(UnreadableFiles, AFolderThatIsGone) {
  const std::string call = "simulate --cluster=cpu:1x1 --recipe=" + Path("recipe.toml") + " --trace=step.json";
  const Result result = Wait(
      StartProgram({"/bin/bash", "-c",
                    "lego=$PWD/server/cli/lego; cd " + Path("folder") + "; rmdir " + Path("folder") + "; exec $lego " + call}));
  ExpectRefusal(result, "--trace = step.json", call);
}

}  // namespace
}  // namespace legoai
