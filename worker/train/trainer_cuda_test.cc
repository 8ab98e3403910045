// Trainer processes on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "worker/train/testing/trainer_run.h"

namespace legoai::train {
namespace {

using ::testing::HasSubstr;

class TrainerCudaTest : public testing::TrainerRun {};

v1::Model TinyGpt2(v1::Model model) {
  model.set_architecture(v1::GPT2);
  model.set_num_key_value_heads(model.num_attention_heads());
  model.set_tie_word_embeddings(true);
  model.set_embd_pdrop(0.1);
  model.set_attn_pdrop(0.1);
  model.set_resid_pdrop(0.1);
  return model;
}

// One GPU trains what one core trains: the weights begin alike, and dropout drops the same. Without a GPU: the refusal.
TEST_F(TrainerCudaTest, TrainsAsTheCpuOrAMissingGpuIsAFieldError) {
  v1::Model wide = request_.model;
  wide.set_head_dim(8);  // the least that a GPU's attention takes in bf16
  struct Case {
    const char* name;
    v1::Model model;
    v1::DType param;
    double tolerance;
  };
  for (const Case& test : {Case{"llama", request_.model, v1::FLOAT32, 1e-3}, Case{"llama-bf16", wide, v1::BFLOAT16, 5e-2},
                           Case{"gpt2", TinyGpt2(request_.model), v1::FLOAT32, 1e-3}}) {
    SCOPED_TRACE(test.name);
    request_.model = test.model;
    recipe().mutable_training()->set_mixed_precision_param(test.param);
    request_.device = "cuda";
    const std::string cuda = absl::StrCat(test.name, "-cuda"), cpu = absl::StrCat(test.name, "-cpu");
    const auto outcome = Train(cuda, 1);
    if (!outcome.ok()) {
      const auto fault = GetFieldViolation(outcome.status());
      ASSERT_TRUE(fault.has_value()) << outcome.status();
      EXPECT_EQ(fault->field(), "device");
      EXPECT_EQ(fault->value(), "cuda");
      EXPECT_THAT(fault->remedy(), HasSubstr("use a machine with a GPU, or device cpu"));
      return;
    }
    EXPECT_EQ(outcome->step, 6);
    request_.device = "cpu";
    ASSERT_TRUE(Train(cpu, 1).ok());
    for (const auto& [step, loss] : Losses(cpu)) EXPECT_NEAR(Losses(cuda).at(step), loss, test.tolerance) << step;
  }
}

}  // namespace
}  // namespace legoai::train
