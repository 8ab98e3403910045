#include "worker/model/hf_weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
#include <random>

#include "core/model/hf_config.h"
#include "proto/errors.h"

namespace legoai::model {
namespace {

using checkpoint::SafetensorsWriter;
using checkpoint::TensorSpec;
using parallel::ShardSpec;

const char kTestdata[] = "worker/model/testdata/";

v1::Model Config(const std::string& name) { return ReadHfConfig(kTestdata + name).value(); }

std::vector<float> Load(const HfWeights& weights, const ShardSpec& spec) {
  std::vector<float> values(spec.Elements(), -1e30f);
  EXPECT_EQ(weights.Load(spec, values.data()), absl::OkStatus());
  return values;
}

// The rectangle of a row-major tensor, one element at a time.
std::vector<float> Slice(const std::vector<float>& whole, const ShardSpec& spec) {
  std::vector<float> part;
  for (int64_t i = 0; i < spec.Elements(); ++i) {
    int64_t rest = i, index = 0, stride = 1;
    for (int64_t d = static_cast<int64_t>(spec.sizes.size()) - 1; d >= 0; --d) {
      index += (spec.offsets[d] + rest % spec.sizes[d]) * stride;
      rest /= spec.sizes[d];
      stride *= spec.global_shape[d];
    }
    part.push_back(whole[index]);
  }
  return part;
}

TEST(HfWeightsTest, EveryRectangleIsASliceOfTheWhole) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  auto draw = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  for (const char* name : {"llama-rope-scaled", "gpt2"}) {
    const v1::Model config = Config(name);
    const auto weights = HfWeights::Open(std::string(kTestdata) + name, config).value();
    for (const HfTensor& tensor : HfTensors(config)) {
      for (const std::string& parameter : tensor.parameters) {
        const ShardSpec whole = parallel::Unsharded(parameter, tensor.parameter_shape);
        ShardSpec part = whole;
        for (int64_t d = 0; d < static_cast<int64_t>(whole.sizes.size()); ++d) {
          const int64_t degree = draw(1, 5);
          Cut(&part, d, degree, draw(0, degree - 1), mesh::Dim::kTp);
        }
        EXPECT_EQ(Load(weights, part), Slice(Load(weights, whole), part)) << parameter;
      }
    }
  }
}

// c_attn.weight is [in, 3 dim]: column 3 dim j belongs to row j of q, k or v.
TEST(HfWeightsTest, SplitsAndTurnsTheFusedProjectionOfGpt2) {
  const v1::Model config = Config("gpt2");
  const std::string folder = std::string(kTestdata) + "gpt2";
  const auto weights = HfWeights::Open(folder, config).value();
  const auto reader = checkpoint::SafetensorsReader::Open(folder);
  std::vector<float> fused(32 * 96);
  std::memcpy(fused.data(), reader->Bytes("transformer.h.1.attn.c_attn.weight")->data(), fused.size() * 4);
  const char* parts[] = {"q_proj", "k_proj", "v_proj"};
  for (int part = 0; part < 3; ++part) {
    const std::string name = std::string("transformer.h.1.attn.") + parts[part] + ".weight";
    const std::vector<float> ours = Load(weights, parallel::Unsharded(name, {32, 32}));
    for (int out = 0; out < 32; ++out) {
      for (int in = 0; in < 32; ++in) ASSERT_EQ(ours[out * 32 + in], fused[in * 96 + part * 32 + out]);
    }
  }
}

// A file that fits a model but for what `change` does to its tensors. All bytes are 0x3c, those of lm_head are `head`.
std::string WriteFile(const v1::Model& config, const std::function<void(std::map<std::string, TensorSpec>*)>& change,
                      char head = '\x3c') {
  std::map<std::string, TensorSpec> tensors;
  for (const HfTensor& tensor : HfTensors(config)) tensors[tensor.name] = {tensor.name, v1::FLOAT32, tensor.shape};
  change(&tensors);
  std::vector<TensorSpec> specs;
  for (const auto& [name, spec] : tensors) specs.push_back(spec);
  const std::string path = testing::TempDir() + "/changed.safetensors";
  auto writer = SafetensorsWriter::Create(path, specs);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const TensorSpec& spec : specs) {
    int64_t bytes = spec.dtype == v1::FLOAT32 ? 4 : spec.dtype == v1::INT64 ? 8 : 2;
    for (int64_t size : spec.shape) bytes *= size;
    const char value = spec.name == "lm_head.weight" ? head : '\x3c';
    EXPECT_EQ(writer->Write(spec.name, std::string(bytes, value).data(), bytes), absl::OkStatus());
  }
  EXPECT_EQ(writer->Finish(), absl::OkStatus());
  return path;
}

void ExpectRefused(const std::string& path, const v1::Model& config, const std::string& field, const std::string& words) {
  const auto weights = HfWeights::Open(path, config);
  ASSERT_FALSE(weights.ok());
  const auto violation = GetFieldViolation(weights.status());
  ASSERT_TRUE(violation.has_value()) << weights.status();
  EXPECT_EQ(violation->field(), field);
  EXPECT_NE(std::string(weights.status().message()).find(words), std::string::npos) << weights.status();
}

TEST(HfWeightsTest, RefusesWeightsThatDoNotFit) {
  const v1::Model config = Config("llama-gqa");
  using Tensors = std::map<std::string, TensorSpec>;
  ExpectRefused(WriteFile(config, [](Tensors* t) { t->erase("model.norm.weight"); }), config, "weights: model.norm.weight",
                "missing; the model wants it of shape [32]");
  ExpectRefused(WriteFile(config,
                          [](Tensors* t) {
                            (*t)["lm_head.weight"].shape = {61, 31};
                          }),
                config, "weights: lm_head.weight", "[61, 31]: does not fit: the model wants [61, 32]");
  ExpectRefused(WriteFile(config,
                          [](Tensors* t) {
                            (*t)["model.layers.2.x"] = {"model.layers.2.x", v1::FLOAT32, {3}};
                          }),
                config, "weights: model.layers.2.x", "the model has no such tensor");
  ExpectRefused(WriteFile(config, [](Tensors* t) { (*t)["lm_head.weight"].dtype = v1::INT64; }), config,
                "weights: lm_head.weight", "I64: must be F32, BF16 or F16");
  EXPECT_TRUE(absl::IsNotFound(HfWeights::Open(testing::TempDir() + "/nowhere", config).status()));
}

TEST(HfWeightsTest, TakesATiedHeadThatEqualsTheEmbeddingOnly) {
  const v1::Model config = Config("llama-tied");
  const auto with_head = [](auto* tensors) { (*tensors)["lm_head.weight"] = {"lm_head.weight", v1::FLOAT32, {61, 32}}; };
  const auto same = HfWeights::Open(WriteFile(config, with_head), config);
  EXPECT_TRUE(same.ok()) << same.status();
  ExpectRefused(WriteFile(config, with_head, '\x3d'), config, "weights: lm_head.weight",
                "differs from model.embed_tokens.weight");
  const auto of_another_type = [](auto* tensors) { (*tensors)["lm_head.weight"] = {"lm_head.weight", v1::FLOAT16, {61, 32}}; };
  ExpectRefused(WriteFile(config, of_another_type), config, "weights: lm_head.weight",
                "is of another type than model.embed_tokens.weight (F32)");
}

TEST(HfWeightsTest, ReadsHalfPrecision) {
  const v1::Model config = Config("llama-gqa");
  const std::string path = WriteFile(config, [](auto* tensors) {
    (*tensors)["model.norm.weight"].dtype = v1::BFLOAT16;
    (*tensors)["lm_head.weight"].dtype = v1::FLOAT16;
  });
  const auto weights = HfWeights::Open(path, config).value();
  // All bytes are 0x3c.
  EXPECT_EQ(Load(weights, parallel::Unsharded("model.norm.weight", {32})),
            std::vector<float>(32, std::bit_cast<float>(0x3c3c0000)));
  EXPECT_EQ(Load(weights, parallel::Unsharded("lm_head.weight", {61, 32})), std::vector<float>(61 * 32, 1.0f + 60.0f / 1024));
  EXPECT_EQ(Load(weights, parallel::Unsharded("model.embed_tokens.weight", {61, 32}))[7], std::bit_cast<float>(0x3c3c3c3c));
}

TEST(HfWeightsTest, TakesTheNamesAndBuffersOfTheReleasedGpt2) {
  const v1::Model config = Config("gpt2");
  const std::string path = WriteFile(config, [](auto* tensors) {
    std::map<std::string, TensorSpec> renamed;
    for (auto& [name, spec] : *tensors) {
      spec.name = name.substr(std::string("transformer.").size());
      renamed[spec.name] = spec;
    }
    renamed["h.0.attn.bias"] = {"h.0.attn.bias", v1::FLOAT32, {1, 1, 32, 32}};
    *tensors = renamed;
  });
  const auto weights = HfWeights::Open(path, config).value();
  Load(weights, parallel::Unsharded("transformer.h.0.mlp.c_fc.weight", {128, 32}));
}

TEST(HfWeightsTest, AFailingSourceLeavesNoFolderThatLooksWhole) {
  const std::string folder = testing::TempDir() + "/failing";
  const absl::Status status = ExportHfFolder(Config("gpt2"), folder, [](const std::string& name, const auto&, float*) {
    return name == "transformer.h.1.ln_2.bias" ? absl::DataLossError("torn chunk") : absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(status.message()).find("transformer.h.1.ln_2.bias"), std::string::npos) << status;
  EXPECT_FALSE(checkpoint::ReadFile(folder + "/config.json").ok());
  EXPECT_FALSE(checkpoint::ReadFile(folder + "/model.safetensors").ok());
}

}  // namespace
}  // namespace legoai::model
