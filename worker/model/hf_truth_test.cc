// Against Hugging Face transformers: what testdata/record_hf_reference.py recorded.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_layout.h"
#include "core/model/hf_config.h"
#include "worker/model/hf_weights.h"
#include "worker/model/language_model.h"

namespace legoai::model {
namespace {

class HfTruthTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  std::string Folder() const { return std::string("worker/model/testdata/") + GetParam(); }
};

at::Tensor ReadTensor(const checkpoint::SafetensorsReader& reader, const std::string& name, at::ScalarType dtype) {
  const checkpoint::TensorInfo* info = reader.Find(name).value();
  at::Tensor out = at::empty(info->shape, dtype);
  EXPECT_EQ(reader.Read(name, checkpoint::WholeOf(info->shape), out.mutable_data_ptr()), absl::OkStatus());
  return out;
}

TEST_P(HfTruthTest, LogitsAreThoseOfTransformers) {
  const auto reference = checkpoint::SafetensorsReader::Open(Folder() + "/reference.safetensors").value();
  const at::Tensor tokens = ReadTensor(reference, "tokens", at::kLong);
  const at::Tensor expected = ReadTensor(reference, "logits", at::kFloat);

  // The weights lie beside reference.safetensors, which is none of the model's files.
  const auto config = ReadHfConfig(Folder()).value();
  const auto weights = HfWeights::Open(Folder(), config).value();
  auto model = BuildModel(config).value();
  for (Parameter* p : model->Parameters()) {
    p->value = at::full(p->local_shape, NAN, at::kFloat);
    ASSERT_EQ(weights.Load(p->spec, p->value.mutable_data_ptr<float>()), absl::OkStatus());
  }
  model->CreateBuffers(at::kCPU, at::kFloat, tokens.size(1));
  model->context().training = false;
  const at::Tensor logits = (*model)(tokens);
  ASSERT_EQ(logits.sizes(), expected.sizes());
  EXPECT_LT((logits - expected).abs().max().item<double>(), 1e-4);
  EXPECT_GT(expected.abs().max().item<double>(), 0.5);  // or the comparison would say little
}

std::string HexOfSha256(EVP_MD_CTX* context) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context, digest, &size);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", digest[i]);
    hex += two;
  }
  return hex;
}

// Exports the folder's weights with `config` to a new folder.
std::string Export(const std::string& folder, const v1::Model& config, const std::string& out) {
  const auto weights = HfWeights::Open(folder, config);
  EXPECT_TRUE(weights.ok()) << weights.status();
  if (!weights.ok()) return out;
  EXPECT_EQ(ExportHfFolder(config, out,
                           [&](const std::string& name, const std::vector<int64_t>& shape, float* data) {
                             return weights->Load(parallel::Unsharded(name, shape), data);
                           }),
            absl::OkStatus());
  return out;
}

// As digest_of() of the script: name, a zero byte, contents, in the order of names.
std::string DigestOf(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestInit_ex(context, EVP_sha256(), nullptr);
  for (const std::string& name : names) {
    const std::string contents = checkpoint::ReadFile(folder + "/" + name).value();
    EVP_DigestUpdate(context, name.c_str(), name.size() + 1);
    EVP_DigestUpdate(context, contents.data(), contents.size());
  }
  const std::string hex = HexOfSha256(context);
  EVP_MD_CTX_free(context);
  return hex;
}

TEST_P(HfTruthTest, ExportEqualsWhatTransformersWroteAndLoaded) {
  const v1::Model config = ReadHfConfig(Folder()).value();
  const std::string out = Export(Folder(), config, testing::TempDir() + "/export-" + GetParam());
  EXPECT_EQ(checkpoint::ReadFile(out + "/config.json").value(), checkpoint::ReadFile(Folder() + "/config.json").value());
  const auto theirs = checkpoint::SafetensorsReader::Open(Folder()), ours = checkpoint::SafetensorsReader::Open(out);
  ASSERT_TRUE(theirs.ok() && ours.ok()) << theirs.status() << ours.status();
  ASSERT_EQ(ours->tensors().size(), theirs->tensors().size());
  for (size_t i = 0; i < ours->tensors().size(); ++i) {
    const auto &mine = ours->tensors()[i], &yours = theirs->tensors()[i];
    EXPECT_EQ(mine.name, yours.name);
    EXPECT_EQ(mine.dtype, yours.dtype);
    EXPECT_EQ(mine.shape, yours.shape);
    EXPECT_TRUE(ours->Bytes(mine.name).value() == theirs->Bytes(yours.name).value()) << mine.name;
  }
  // These very bytes gave transformers the recorded logits, and so did those with a config.json as composed for the catalog.
  const std::string as_read = DigestOf(out);
  v1::Model composed = config;
  composed.clear_config_json();
  const std::string other = Export(Folder(), composed, testing::TempDir() + "/composed-" + GetParam());
  EXPECT_EQ(absl::StrCat(as_read, "\n", DigestOf(other), "\n"), checkpoint::ReadFile(Folder() + "/export.sha256").value());
}

constexpr const char* kModels[] = {"gemma",
                                   "gemma2",
                                   "gpt2",
                                   "gpt2-untied",
                                   "llama-gqa",
                                   "llama-narrow-heads",
                                   "llama-rope-scaled",
                                   "llama-tied",
                                   "llama-wide-heads",
                                   "mistral",
                                   "mistral-without-window",
                                   "qwen2",
                                   "qwen3",
                                   "qwen3-window"};

TEST(HfTruth, EveryRecordedModelIsCompared) {
  std::set<std::string> recorded;
  for (const auto& entry : std::filesystem::directory_iterator("worker/model/testdata")) {
    if (entry.is_directory()) recorded.insert(entry.path().filename());
  }
  EXPECT_EQ(recorded, std::set<std::string>(std::begin(kModels), std::end(kModels)));
}

INSTANTIATE_TEST_SUITE_P(Models, HfTruthTest, testing::ValuesIn(kModels), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace legoai::model
