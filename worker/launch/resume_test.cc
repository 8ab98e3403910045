#include "worker/launch/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "worker/launch/testing/tiny_run.h"

namespace legoai::launch {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A key that is added to the recipe must be given a rule.
TEST(Resume, EveryKeyOfARecipeHasARule) {
  int64_t fixed = 0, told = 0;
  const auto* recipe = v1::Recipe::descriptor();
  for (int i = 0; i < recipe->field_count(); ++i) {
    const auto* section = recipe->field(i)->message_type();
    for (int j = 0; j < section->field_count(); ++j) {
      const std::string key = absl::StrCat(recipe->field(i)->name(), ".", section->field(j)->name());
      ASSERT_TRUE(RuleOf(key).has_value()) << key;
      fixed += *RuleOf(key) == ResumeRule::kFixed;
      told += *RuleOf(key) == ResumeRule::kTold;
    }
  }
  EXPECT_EQ(fixed, 21) << "each rule is about a key that is there";
  EXPECT_EQ(told, 7);
  EXPECT_EQ(RuleOf("training.nothing"), std::nullopt);
  EXPECT_EQ(RuleOf("nothing.lr"), std::nullopt);
}

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    start_.set_run_directory("runs/a");
    *start_.mutable_model() = testing::TinyLlama();
    start_.mutable_recipe()->mutable_training()->set_steps(10);
    start_.mutable_recipe()->mutable_optimizer()->set_lr(1e-3);
    start_.mutable_recipe()->mutable_lr_scheduler()->set_decay_type("cosine");
    start_.set_tokenizer_identity("byte");
    start_.mutable_dataset()->set_sha256("ab");
    manifest_.set_step(3);
    *manifest_.mutable_recipe() = start_.recipe();
    *manifest_.mutable_model() = CanonicalModel(start_.model());
    manifest_.set_tokenizer_identity("byte");
    manifest_.set_dataset_sha256("ab");
  }

  std::string Refusal() const {
    const absl::Status status = CheckGoesOn(manifest_, start_).status();
    EXPECT_EQ(GetFieldViolation(status).has_value(), !status.ok());
    return std::string(status.message());
  }

  v1::CheckpointManifest manifest_;
  v1::Start start_;
};

TEST_F(ResumeTest, TheSameGoesOnInAnyLayout) {
  start_.mutable_recipe()->mutable_parallelism()->set_tensor_parallel_degree(2);
  start_.mutable_recipe()->mutable_training()->set_local_batch_size(7);
  start_.mutable_model()->set_name("elsewhere");
  start_.mutable_model()->set_config_json("{}");
  const auto changes = CheckGoesOn(manifest_, start_);
  ASSERT_TRUE(changes.ok()) << changes.status();
  EXPECT_THAT(*changes, IsEmpty());
}

// Every field of a model but its name and its file's text.
TEST_F(ResumeTest, AModelThatDiffersInAnyFieldIsRefused) {
  const v1::Start same = start_;
  const auto* model = v1::Model::descriptor();
  for (int i = 0; i < model->field_count(); ++i) {
    const FieldDescriptor* field = model->field(i);
    if (field->name() == "name" || field->name() == "config_json") continue;
    start_ = same;
    const auto* reflection = start_.model().GetReflection();
    std::string said;  // of the new value
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
        reflection->SetInt64(start_.mutable_model(), field, 12345);
        said = "12345";
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection->SetDouble(start_.mutable_model(), field, 0.12345);
        said = "0.12345";
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(start_.mutable_model(), field, true);
        said = "true";
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection->SetEnumValue(start_.mutable_model(), field, v1::GPT2);
        said = "gpt2";
        break;
      default: start_.mutable_model()->mutable_rope_scaling()->set_factor(0.12345); said = "0.12345";
    }
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("model tiny: " + field->name()), HasSubstr(said))) << field->name();
  }
}

TEST_F(ResumeTest, RefusalsNameBothValuesAndTheRemedy) {
  start_.mutable_recipe()->mutable_optimizer()->set_lr(2e-3);
  EXPECT_EQ(Refusal(),
            "optimizer.lr = 0.002: the checkpoint of step 3 in runs/a was made with 0.001: change it back, choose another "
            "job.dump_folder, or begin anew with --fresh");
  start_.mutable_recipe()->mutable_optimizer()->set_lr(1e-3);
  start_.set_tokenizer_identity("cd");
  start_.mutable_recipe()->mutable_model()->set_tokenizer_path("tokenizer.model");
  EXPECT_THAT(Refusal(), HasSubstr("model.tokenizer_path = tokenizer.model"));
}

// Masters in float32 are what a checkpoint has, with parameters beside them or without; parameters that are rounded are not.
TEST_F(ResumeTest, ParametersMayBeHeldBesideMastersOrNot) {
  struct Held {
    v1::DType dtype;
    bool masters;
  };
  const auto hold = [](const Held& held, v1::Recipe* recipe) {
    recipe->mutable_training()->set_dtype(held.dtype);
    recipe->mutable_optimizer()->set_master_weights(held.masters);
  };
  const std::vector<Held> of_float32 = {{v1::FLOAT32, false}, {v1::BFLOAT16, true}, {v1::FLOAT16, true}};
  for (const Held& then : of_float32) {
    hold(then, manifest_.mutable_recipe());
    for (const Held& now : of_float32) {
      hold(now, start_.mutable_recipe());
      EXPECT_EQ(Refusal(), "");
    }
    hold({v1::BFLOAT16, false}, start_.mutable_recipe());
    const bool one_type = then.dtype == v1::BFLOAT16;
    EXPECT_THAT(Refusal(), HasSubstr(one_type ? "optimizer.master_weights = false" : "training.dtype = bfloat16"));
  }
  hold({v1::BFLOAT16, false}, manifest_.mutable_recipe());
  hold({v1::BFLOAT16, true}, start_.mutable_recipe());
  EXPECT_THAT(Refusal(), HasSubstr("optimizer.master_weights = true"));
}

TEST_F(ResumeTest, TokenizersAndTextsAreComparedByWhatTheyAre) {
  start_.mutable_recipe()->mutable_model()->set_tokenizer_path("moved/tokenizer.model");
  start_.mutable_recipe()->mutable_training()->set_dataset_path("moved/text.txt");
  EXPECT_EQ(Refusal(), "");
  start_.mutable_dataset()->set_sha256("cd");
  EXPECT_THAT(Refusal(), HasSubstr("training.dataset_path = moved/text.txt"));
}

TEST_F(ResumeTest, WeightsToStartFromMayBeForgottenButNotChanged) {
  manifest_.mutable_recipe()->mutable_model()->set_initial_load_path("a");
  EXPECT_EQ(Refusal(), "");
  start_.mutable_recipe()->mutable_model()->set_initial_load_path("a");
  EXPECT_EQ(Refusal(), "");
  start_.mutable_recipe()->mutable_model()->set_initial_load_path("b");
  EXPECT_THAT(Refusal(), HasSubstr("model.initial_load_path = b: "));
}

TEST_F(ResumeTest, WhatChangesWhatIsLearnedIsSaid) {
  start_.mutable_recipe()->mutable_training()->set_steps(20);
  EXPECT_THAT(*CheckGoesOn(manifest_, start_),
              ElementsAre("the learning rate's schedule changed: training.steps from 10 to 20, where the decay ends"));
  start_.mutable_recipe()->mutable_lr_scheduler()->set_decay_ratio(0.2);
  EXPECT_THAT(*CheckGoesOn(manifest_, start_),
              ElementsAre("the learning rate's schedule changed: lr_scheduler.decay_ratio from unset to 0.2",
                          "the learning rate's schedule changed: training.steps from 10 to 20, where the decay ends"));
  start_.mutable_recipe()->mutable_lr_scheduler()->clear_decay_ratio();
  start_.mutable_recipe()->mutable_lr_scheduler()->set_decay_type("none");
  EXPECT_THAT(*CheckGoesOn(manifest_, start_),
              ElementsAre("the learning rate's schedule changed: lr_scheduler.decay_type from cosine to none",
                          "changed: training.steps from 10 to 20"));
}

}  // namespace
}  // namespace legoai::launch
