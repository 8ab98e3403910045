// `lego generate` as a user meets it: real training, then texts of what it left. That cached decoding is what the model says is
// shown in worker/generate; that transformers says the same, in tests/integration.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "proto/text.h"
#include "server/cli/testing/lego_process.h"

namespace legoai::cli {
namespace {

namespace fs = std::filesystem;
using testing::Json;
using testing::ReadAll;
using testing::Result;
using testing::WaitUntil;
using testing::Write;

class Generate : public testing::LegoTest {
 protected:
  // Two ranks, so that checkpoints are sharded; checkpoints of steps 2 and 4, and hf/.
  void Train(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"train",
                                      Path("recipe.toml"),
                                      "--training.steps=4",
                                      "--checkpoint.interval=2",
                                      "--checkpoint.keep_latest_k=0",
                                      "--checkpoint.last_save_in_hf=true"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = Run(words);
    ASSERT_EQ(result.code, 0) << result.err;
  }

  Result Text(const std::string& path, std::vector<std::string> more) const {
    std::vector<std::string> words = {"generate", path};
    words.insert(words.end(), more.begin(), more.end());
    return Run(words);
  }

  Json Say(const std::string& path, std::vector<std::string> more) const {
    more.insert(more.end(), {"-o", "json"});
    const Result result = Text(path, more);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? Json::parse(result.out) : Json();
  }
};

TEST_F(Generate, ARunAndItsExportSayTheSame) {
  Train();
  const std::vector<std::string> call = {"--prompt", "the quick", "--max-new-tokens", "12"};
  const Json said = Say(Path("run"), call);
  EXPECT_EQ(said["model"], Path("run") + " at step 4, from its Hugging Face folder");
  EXPECT_EQ(said["prompt_tokens"], Json({'t', 'h', 'e', ' ', 'q', 'u', 'i', 'c', 'k'}));
  EXPECT_EQ(said["tokens"].size(), 12);
  EXPECT_EQ(said["finish"], "max_new_tokens");
  EXPECT_EQ(Say(Path("run/hf"), call)["tokens"], said["tokens"]);
  // The text streams to standard output, and all else to standard error.
  const Result text = Text(Path("run"), call);
  EXPECT_EQ(text.out, Printable(said["text"].get<std::string>(), Lines::kKeep) + "\n");
  EXPECT_NE(text.err.find("stopped at --max-new-tokens"), std::string::npos) << text.err;
  // From the sharded checkpoint; there step 2 says something else.
  fs::rename(Path("run/hf"), Path("kept"));
  const Json sharded = Say(Path("run"), call);
  EXPECT_EQ(sharded["model"], Path("run") + " at step 4");
  EXPECT_EQ(sharded["tokens"], said["tokens"]);
  EXPECT_EQ(Say(Path("run"), {"--prompt", "the", "--step", "2"})["model"], Path("run") + " at step 2");
  // The runs of a job: the newest attempt that holds something.
  fs::create_directories(Path("jobs/j/epoch-10/checkpoints"));  // an attempt that has no checkpoint yet
  fs::rename(Path("run"), Path("jobs/j/epoch-9"));
  EXPECT_EQ(Say(Path("jobs/j"), call)["tokens"], said["tokens"]);
  EXPECT_EQ(Say(Path("jobs/j"), {"--prompt", "the", "--step", "2"})["model"], Path("jobs/j/epoch-9") + " at step 2");
  // Of one that cannot be looked at it says so; an older one is of no interest.
  for (const char* epoch : {"8", "11"}) {
    fs::create_directories(Path("jobs/j/epoch-" + std::string(epoch) + "/checkpoints"));
    Write(Path("jobs/j/epoch-" + std::string(epoch) + "/recipe.toml"), "no recipe");
  }
  const Json beside = Say(Path("jobs/j"), call);
  EXPECT_EQ(beside["tokens"], said["tokens"]);
  EXPECT_NE(beside["note"].dump().find("a later attempt cannot be looked at: epoch-11"), std::string::npos) << beside;
  fs::remove_all(Path("jobs/j/epoch-11"));
  EXPECT_FALSE(Say(Path("jobs/j"), call).contains("note"));
  fs::create_directories(Path("jobs/bad"));
  fs::rename(Path("jobs/j/epoch-8"), Path("jobs/bad/epoch-8"));
  const Result none = Text(Path("jobs/bad"), {"--prompt", "the"});
  EXPECT_NE(none.code, 0);
  EXPECT_NE(none.err.find("epoch-8"), std::string::npos) << none.err;
  // A folder that was copied elsewhere has all that it takes.
  fs::rename(Path("text.txt"), Path("other.txt"));
  EXPECT_EQ(Say(Path("kept"), call)["tokens"], said["tokens"]);
  // A run whose checkpoints were removed once it was exported.
  fs::create_directories(Path("exported/checkpoints"));
  fs::rename(Path("kept"), Path("exported/hf"));
  EXPECT_EQ(Say(Path("exported"), call)["tokens"], said["tokens"]);
  // Its checkpoints are in a store of which nobody here has the keys.
  Write(Path("exported/recipe.toml"), "[checkpoint]\nfolder = \"s3://bucket/run\"\n");
  const Json exported = Say(Path("exported"), call);
  EXPECT_EQ(exported["tokens"], said["tokens"]);
  EXPECT_NE(exported["note"].dump().find("AWS_ACCESS_KEY_ID"), std::string::npos) << exported;
  EXPECT_NE(Text(Path("exported"), {"--prompt", "the", "--step", "2"}).err.find("AWS_ACCESS_KEY_ID"), std::string::npos);
}

// Ids that end a text beside the tokenizer's own, as instruction-tuned models have them: they end it and are no part of it.
TEST_F(Generate, EndsWhereTheModelsFolderSaysSo) {
  Train();
  const std::vector<std::string> call = {"--prompt", "the quick", "--max-new-tokens", "12"};
  const Json said = Say(Path("run/hf"), call);
  const auto tokens = said["tokens"].get<std::vector<int64_t>>();
  const int64_t end = tokens.back();
  const auto first = static_cast<size_t>(std::find(tokens.begin(), tokens.end(), end) - tokens.begin());
  const int64_t too_large = end + (int64_t{1} << 32);
  const auto with = [&](const Json& ids) {
    Write(Path("run/hf/generation_config.json"), Json({{"eos_token_id", ids}}).dump());
    return Say(Path("run/hf"), call);
  };
  const Json ended = with({end, 255});
  EXPECT_EQ(ended["finish"], "end_of_text");
  EXPECT_EQ(ended["text"], said["text"].get<std::string>().substr(0, ended["text"].get<std::string>().size()));
  EXPECT_EQ(ended["tokens"].size(), first + 1);
  const Json before =
      Say(Path("run/hf"), {"--prompt", "the quick", "--max-new-tokens", std::to_string(std::max<size_t>(first, 1))});
  EXPECT_TRUE(first == 0 || ended["text"] == before["text"]) << ended << before;
  EXPECT_EQ(with({too_large})["tokens"], said["tokens"]) << "an id that no model has";
}

TEST_F(Generate, DrawsByTheSeed) {
  Train();
  const auto draw = [&](const std::string& seed) {
    return Say(Path("run"), {"--prompt", "a", "--temperature", "1.5", "--top-p", "0.9", "--seed", seed})["tokens"];
  };
  EXPECT_EQ(draw("1"), draw("1"));
  EXPECT_NE(draw("1"), draw("2"));
  EXPECT_EQ(Say(Path("run"), {"--prompt", "a", "--dtype", "bfloat16"})["finish"], "context");
  // From a file and from standard input, with line ends.
  Write(Path("prompt"), "the\nquick");
  const Json file = Say(Path("run"), {"--prompt-file", Path("prompt")});
  EXPECT_EQ(file["prompt"], "the\nquick");
  const Result piped = Wait(StartProgram(
      {"/bin/bash", "-c", "printf 'the\\nquick' | server/cli/lego generate " + Path("run") + " --prompt-file - -o yaml"}));
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_NE(piped.out.find("prompt: \"the\\nquick\""), std::string::npos) << piped.out;
}

// Tied embeddings, learned positions, dropout in training; a tiktoken file, whose documents have a beginning.
TEST_F(Generate, Gpt2EndsWhereItsContextIsFull) {
  Write(Path("config.json"), R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 520, "n_embd": 32,
      "n_layer": 2, "n_head": 4, "n_positions": 24})");
  Train({"--model.tokenizer_path=core/data/testdata/small.tiktoken"});
  const Json said = Say(Path("run"), {"--prompt", "the"});
  EXPECT_EQ(said["prompt_tokens"][0], 512);
  const size_t prompt = said["prompt_tokens"].size();
  if (said["finish"] == "context") {
    EXPECT_EQ(prompt + said["tokens"].size(), 25) << "the last token is not fed any more";
  } else {
    EXPECT_EQ(said["finish"], "end_of_text");
    EXPECT_EQ(said["tokens"].back(), 513);
  }
  EXPECT_EQ(Say(Path("run/hf"), {"--prompt", "the"})["tokens"], said["tokens"]);
  fs::remove_all(Path("run/hf"));
  EXPECT_EQ(Say(Path("run"), {"--prompt", "the"})["tokens"], said["tokens"]);
  ExpectError({"generate", Path("run"), "--prompt", "x", "--tokenizer", "byte"}, 2, {"--tokenizer = byte", "is not the one"});
}

TEST_F(Generate, StreamsAndCanBeInterrupted) {
  Train();
  std::string config = ReadAll(Path("run/hf/config.json"));
  config.replace(config.find("\"max_position_embeddings\": 64"), 29, "\"max_position_embeddings\": 400000");
  Write(Path("run/hf/config.json"), config);
  const pid_t lego = Start({"generate", Path("run/hf"), "--prompt", "the", "--max-new-tokens", "399000"});
  WaitUntil("some of the text", [&] { return ReadAll(OutputOf(lego, "stdout")).size() > 20; });
  kill(lego, SIGINT);
  const Result result = Wait(lego);
  EXPECT_EQ(result.code, 130) << result.err;
  EXPECT_NE(result.err.find("; interrupted"), std::string::npos) << result.err;
}

TEST_F(Generate, WrongCallsAreNamed) {
  const auto expect = [&](std::vector<std::string> words, const std::vector<std::string>& parts) {
    words.insert(words.begin(), "generate");
    ExpectError(words, 2, parts);
  };
  const std::string run = Path("run");
  expect({run}, {"--prompt", "is needed"});
  expect({run, "--prompt", "a", "--prompt-file", "b"}, {"--prompt", "one of the two"});
  expect({run, "--prompt", ""}, {"--prompt", "is empty"});
  expect({run, "--prompt-file", Path("nowhere")}, {"nowhere"});
  expect({run, "--prompt", "a", "--temperature", "-1"}, {"--temperature = -1", "at least 0"});
  expect({run, "--prompt", "a", "--top-p", "0"}, {"--top-p = 0", "above 0 and at most 1"});
  expect({run, "--prompt", "a", "--top-p", "1.5"}, {"--top-p = 1.5", "above 0 and at most 1"});
  expect({run, "--prompt", "a", "--max-new-tokens", "0"}, {"--max-new-tokens = 0", "at least 1"});
  expect({run, "--prompt", "a", "--seed", "-1"}, {"--seed = -1"});
  expect({run, "--prompt", "a", "--dtype", "int8"}, {"--dtype = int8", "float32 or bfloat16"});
  expect({Path("nowhere"), "--prompt", "a"}, {"RUN|FOLDER", "nowhere", "is no folder"});
  fs::create_directories(Path("empty"));
  expect({Path("empty"), "--prompt", "a"}, {"RUN|FOLDER", "holds no model"});
  fs::create_directories(Path("new/checkpoints"));
  expect({Path("new"), "--prompt", "a"}, {"new/checkpoints", "no committed checkpoint yet"});
  expect({Path("."), "--prompt", "a"}, {"--tokenizer", "is needed"});  // config.json alone
  expect({Path("."), "--prompt", "a", "--tokenizer", Path("nowhere")}, {"nowhere"});
}

TEST_F(Generate, WhatTheRunDoesNotHaveIsNamed) {
  Train();
  const std::string run = Path("run"), longer(65, 'a');
  ExpectError({"generate", run, "--prompt", "a", "--step", "3"}, 2, {"--step = 3", "there are 2, 4"});
  ExpectError({"generate", Path("run/hf"), "--prompt", "a", "--step", "4"}, 2, {"--step = 4", "goes with a run directory"});
  ExpectError({"generate", run, "--prompt", longer}, 2, {"--prompt = 65 tokens", "context of 64 tokens"});
  EXPECT_EQ(Say(run, {"--prompt", longer.substr(1)})["tokens"].size(), 1);
  fs::remove(Path("run/hf/model.safetensors"));
  ExpectError({"generate", Path("run/hf"), "--prompt", "a"}, 2, {"model.safetensors"});
}

}  // namespace
}  // namespace legoai::cli
