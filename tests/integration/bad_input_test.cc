// What is wrong is refused before anything starts, through the command: the exit code, field, value and remedy are said, and
// nothing is begun. (That no process is left is seen by the fixture.)
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/hardware/catalog.h"
#include "server/cli/testing/lego_process.h"

namespace legoai {
namespace {

namespace fs = std::filesystem;
using cli::testing::Json;
using cli::testing::Result;
using cli::testing::Write;

class BadInput : public cli::testing::LegoTest {
 protected:
  // `lego train` with `more` refuses, saying all of `parts`, and begins nothing.
  void ExpectTrainRefuses(const std::vector<std::string>& more, const std::vector<std::string>& parts, int code = 2) {
    std::vector<std::string> words = {"train", Path("recipe.toml")};
    words.insert(words.end(), more.begin(), more.end());
    ExpectError(words, code, parts);
    ExpectNothingBegun();
  }
  void ExpectNothingBegun() {
    for (const char* name : {"run/recipe.toml", "run/run.json", "run/metrics.jsonl", "run/hf"}) {
      EXPECT_FALSE(fs::exists(Path(name))) << name;
    }
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(Path("run/checkpoints"), none)) ADD_FAILURE() << entry.path();
  }
  // A recipe of its own text, and what is said of it.
  void ExpectRecipeRefused(const std::string& text, const std::vector<std::string>& parts) {
    Write(Path("recipe.toml"), text);
    ExpectTrainRefuses({}, parts);
  }
  std::string ModelWith(const std::string& key, const Json& value) {
    Json config = Json::parse(cli::testing::ReadAll(Path("config.json")));
    value.is_null() ? void(config.erase(key)) : void(config[key] = value);
    fs::create_directories(Path("other"));
    Write(Path("other/config.json"), config.dump());
    return "--model=" + Path("other");
  }
};

TEST_F(BadInput, UnknownKeysAndValuesOfARecipe) {
  ExpectRecipeRefused(Recipe("local_bach_size = 3\n"),
                      {"training.local_bach_size = 3", "the nearest known one is training.local_batch_size", "recipe.toml"});
  ExpectRecipeRefused(Recipe("[trainin]\nsteps = 3\n"), {"trainin", "training"});
  ExpectRecipeRefused(Recipe("[activation_checkpoint]\nmode = \"ful\"\n"),
                      {"activation_checkpoint.mode = ful", "\"none\"", "\"full\""});
  ExpectRecipeRefused(Recipe("max_norm = \"big\"\n"), {"training.max_norm = big", "must be a number"});
  ExpectRecipeRefused(Recipe("steps = 7\n"), {"line 11", "'steps'"});
  ExpectRecipeRefused("[training\n", {"recipe.toml", "line 1"});
  Write(Path("recipe.toml"), Recipe(""));
  ExpectTrainRefuses({"--training.steps=many"}, {"training.steps = many", "must be a whole number"});
  ExpectTrainRefuses({"--training.steps=0"}, {"training.steps = 0"});
  ExpectTrainRefuses({"--training.steps=2", "--training.steps=3"}, {"--training.steps = 3", "is given twice"});
  ExpectTrainRefuses({"--optimizer.name=Lion"}, {"optimizer.name = Lion", "AdamW"});
  ExpectTrainRefuses({"--activation_checkpoint.selective_ac_option=ops"},
                     {"activation_checkpoint.selective_ac_option = ops", "must be \"op\""});
}

TEST_F(BadInput, ImpossibleDegrees) {
  ExpectTrainRefuses({"--nproc=2", "--parallelism.tensor_parallel_degree=3"}, {"parallelism", "tensor_parallel_degree 3", "2"});
  ExpectTrainRefuses({"--parallelism.tensor_parallel_degree=8"}, {"parallelism.tensor_parallel_degree = 8", "4 attention heads"});
  ExpectTrainRefuses({"--parallelism.pipeline_parallel_degree=3"}, {"parallelism.pipeline_parallel_degree = 3", "2 layers"});
  ExpectTrainRefuses({"--nproc=3"}, {"training.global_batch_size = 4"});
  ExpectTrainRefuses({"--nproc=0"}, {"--nproc = 0", "at least 1"});
  ExpectError({"plan", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "--constraint",
               "parallelism.tensor_parallel_degree=64", "--out", Path("winner.toml")},
              2, {"--constraint = parallelism.tensor_parallel_degree=64", "use one of 1, 2"});
  EXPECT_FALSE(fs::exists(Path("winner.toml")));
}

TEST_F(BadInput, ModelsThatCannotBeBuilt) {
  ExpectTrainRefuses({ModelWith("hidden_size", nullptr)}, {"other/config.json", "config.json: hidden_size", "is missing"});
  ExpectTrainRefuses({ModelWith("architectures", {"MambaForCausalLM"})},
                     {"config.json: architectures", "MambaForCausalLM", "GPT2LMHeadModel and GPTModel"});
  ExpectTrainRefuses({ModelWith("num_key_value_heads", 3)}, {"config.json: num_key_value_heads = 3", "must divide"});
  Write(Path("other/config.json"), R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 256, "vocab_size": 512})");
  ExpectTrainRefuses({"--model=" + Path("other")}, {"config.json: vocab_size", "is given twice"});
  Write(Path("other/config.json"), "{\n\"vocab_size\": }");
  ExpectTrainRefuses({"--model=" + Path("other")}, {"other/config.json", "line 2"});
  ExpectTrainRefuses({"--model=" + Path("nowhere")}, {"model.name", "nowhere", "lego models"});
}

// A safetensors file with one tensor of zeros.
std::string Safetensors(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t bytes = 4;
  for (const int64_t size : shape) bytes *= size;
  const std::string header = Json({{name, {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {0, bytes}}}}}).dump();
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(bytes, '\0');
}

TEST_F(BadInput, WeightsThatDoNotFit) {
  const std::string key = "--model.initial_load_path=" + Path("weights"), field = "model.initial_load_path = " + Path("weights");
  ExpectTrainRefuses({key}, {field, "No such file"});
  fs::create_directories(Path("weights"));
  ExpectTrainRefuses({key}, {field, "model.safetensors"});
  const std::string file = Path("weights/model.safetensors");
  Write(file, Safetensors("model.embed_tokens.weight", {128, 32}));
  ExpectTrainRefuses({key}, {field, "model.embed_tokens.weight = [128, 32]", "[256, 32]", "check config.json"});
  Write(file, Safetensors("model.embed_tokens.weight", {256, 32}));
  ExpectTrainRefuses({key}, {field, "missing", "model.layers.0"});
  Write(file, Safetensors("model.embed_tokens.weight", {256, 32}).substr(0, 5000));
  ExpectTrainRefuses({key}, {field, "model.safetensors"});
}

TEST_F(BadInput, TokenizersThatDoNotFitTheModel) {
  ExpectTrainRefuses({ModelWith("vocab_size", 200)}, {"model.tokenizer_path = byte", "256", "200"});
  // 256 bytes and one pair, which with two special ids are more than the model's 256.
  std::string file;
  static const char* const kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int byte = 0; byte < 256; ++byte) {
    file += std::string{kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='} + " " + std::to_string(byte) + "\n";
  }
  Write(Path("small.tiktoken"), file + "dGg= 256\n");
  ExpectTrainRefuses({"--model.tokenizer_path=" + Path("small.tiktoken")},
                     {"model.tokenizer_path", "small.tiktoken", "259", "256"});
  Write(Path("small.tiktoken"), file + "dGg= 300\n");
  ExpectTrainRefuses({"--model.tokenizer_path=" + Path("small.tiktoken")}, {"model.tokenizer_path", "small.tiktoken:257"});
  ExpectTrainRefuses({"--model.tokenizer_path=" + Path("none.tiktoken")}, {"model.tokenizer_path", "none.tiktoken"});
}

TEST_F(BadInput, DatasetsThatAreMissingOrTooShort) {
  const std::string key = "--training.dataset_path=";
  ExpectTrainRefuses({key + Path("none.txt")}, {"training.dataset_path = " + Path("none.txt"), "no such file"});
  ExpectTrainRefuses({key + Path("")}, {"training.dataset_path", "not a regular file"});
  Write(Path("empty.txt"), "");
  ExpectTrainRefuses({key + Path("empty.txt")}, {"training.dataset_path = " + Path("empty.txt"), "is empty"});
  Write(Path("short.txt"), "sixteen tokens..");
  ExpectTrainRefuses({key + Path("short.txt"), "--training.validation_fraction=0"},
                     {"training.dataset_path = 16 tokens", "17", "training.seq_len"});
  ExpectTrainRefuses({"--training.validation_fraction=0.0001"}, {"training.validation_fraction = 0.0001", "hold out more"});
}

// One device with so little memory that only the closed-form bound, or also a simulation, says that nothing fits.
TEST_F(BadInput, AClusterWithoutRoomNamesTheClosestRecipe) {
  for (const int64_t bytes : {300'000, 660'000}) {
    auto cluster = sim::ParseCluster("a100-sxm-40:1x1").value();
    cluster.mutable_device()->set_memory_bytes(bytes);
    cluster.mutable_device()->set_reserve_bytes(0);
    std::string text;
    google::protobuf::TextFormat::PrintToString(cluster, &text);
    Write(Path("small.txtpb"), text);
    const Result planned = Run({"plan", "--recipe", Path("recipe.toml"), "--cluster", Path("small.txtpb"), "--budget-seconds",
                                "0", "--rejected", "all", "-o", "json", "--out", Path("winner.toml")});
    EXPECT_EQ(planned.code, 3) << planned.err;
    const Json json = Json::parse(planned.out);
    EXPECT_TRUE(json["ranked"].empty());
    ASSERT_FALSE(json["rejected"].empty());
    int64_t before = bytes;
    for (const Json& rejected : json["rejected"]) {
      if (rejected["rule"] != "out_of_memory") continue;
      EXPECT_GE(rejected["peak_memory_bytes"], before) << "the closest first";
      before = rejected["peak_memory_bytes"];
    }
    cli::testing::ExpectAllRejected(json);
    const Json& closest = json["rejected"][0];
    const std::string batch = "local batch " + closest["recipe"]["training"]["local_batch_size"].dump();
    for (const std::string& part : {std::string("Nothing fits. The closest is "), batch, closest["reason"].get<std::string>(),
                                    std::string("devices like these are needed")}) {
      EXPECT_NE(planned.err.find(part), std::string::npos) << part << " is not in " << planned.err;
    }
    EXPECT_FALSE(fs::exists(Path("winner.toml"))) << "a recipe that does not fit";
    const Result simulated = Run({"simulate", "--recipe", Path("recipe.toml"), "--cluster", Path("small.txtpb"), "-o", "json"});
    EXPECT_EQ(simulated.code, 3) << simulated.err;
    EXPECT_EQ(Json::parse(simulated.out)["fits"], false);
    for (const char* part : {"does not fit: stage 0 needs", "full checkpointing, a smaller local batch or a shorter sequence"}) {
      EXPECT_NE(simulated.err.find(part), std::string::npos) << simulated.err;
    }
  }
}

TEST_F(BadInput, ClustersThatAreNone) {
  const auto refused = [&](const std::string& cluster, const std::vector<std::string>& parts) {
    ExpectError({"plan", "--recipe", Path("recipe.toml"), "--cluster", cluster}, 2, parts);
  };
  refused("h100:8x1", {"--cluster = h100", "h100-sxm-80"});
  refused("h100-sxm-80:0x1", {"--cluster = h100-sxm-80:0x1"});
  Write(Path("broken.txtpb"), "name: \"c\"\nnodes: 1\nnodes: 2\n");
  refused(Path("broken.txtpb"), {"--cluster = " + Path("broken.txtpb"), "line 3", "nodes"});
}

// Trains where there is a GPU.
TEST_F(BadInput, AMissingGpuIsNamed) {
  const Result result = Run({"train", Path("recipe.toml"), "--nproc=1", "--device=cuda"});
  if (result.code == 0) return;
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_NE(result.err.find("device = cuda"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("use a machine with a GPU, or device cpu"), std::string::npos) << result.err;
  EXPECT_FALSE(fs::exists(Path("run"))) << "nothing is begun";
  ExpectError({"train", Path("recipe.toml"), "--device=tpu"}, 2, {"--device = tpu", "cpu or cuda"});
}

TEST_F(BadInput, APredictionForTheCpuIsNotShownBesideAGpu) {
  ExpectTrainRefuses({"--device=cuda", "--predict"}, {"--predict", "goes with --device cpu"});
}

TEST_F(BadInput, WhereResultsCannotBeWritten) {
  ExpectTrainRefuses({"--job.dump_folder=/proc/none"}, {"job.dump_folder = /proc/none"});
  ExpectError({"hardware", "--measure", "--out=/proc/none/here"}, 2, {"--out = /proc/none/here", "cannot be written"});
  ExpectError({"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:1x1", "--trace", Path("none/trace.json")}, 2,
              {"--trace", "none/trace.json", "its folder does not exist"});
  ExpectError({"plan", "--recipe", Path("recipe.toml"), "--cluster", "cpu:1x1", "--out", Path("none/winner.toml")}, 2,
              {"--out", "none/winner.toml", "its folder does not exist"});
}

// Input larger, deeper and further out of range than anybody means.
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
