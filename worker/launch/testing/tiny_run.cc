#include "worker/launch/testing/tiny_run.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/recipe/recipe.h"

namespace legoai::launch::testing {

v1::Model TinyLlama() {
  v1::Model model;
  model.set_name("tiny");
  model.set_architecture(v1::LLAMA);
  model.set_vocab_size(256);
  model.set_hidden_size(16);
  model.set_intermediate_size(32);
  model.set_num_hidden_layers(2);
  model.set_num_attention_heads(4);
  model.set_num_key_value_heads(2);
  model.set_head_dim(4);
  model.set_max_position_embeddings(64);
  model.set_norm_eps(1e-5);
  model.set_rope_theta(10000);
  model.set_initializer_range(0.02);
  return model;
}

TinyRun::TinyRun(const std::string& trainer)
    : folder_(absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  request_.trainer = trainer;
  request_.nproc = 2;
  request_.model = TinyLlama();
  request_.recipe = parallel::DefaultRecipe();
  recipe().mutable_job()->set_dump_folder(folder_ + "/run");
  recipe().mutable_training()->set_dataset_path(folder_ + "/text.txt");
  recipe().mutable_training()->set_seq_len(16);
  recipe().mutable_training()->set_local_batch_size(2);
  recipe().mutable_comm()->set_init_timeout_seconds(600);
  recipe().mutable_comm()->set_train_timeout_seconds(600);
  callbacks_.started = [this](int64_t rank, int64_t pid) { pids_[rank] = static_cast<pid_t>(pid); };
  callbacks_.metrics = [this](const v1::StepMetrics& metrics) {
    if (metrics.step() == stop_at_) stop_.Request(/*save=*/true);
  };
  callbacks_.log = [this](const std::string& level, const std::string& text) {
    std::fprintf(stderr, "%s: %s\n", level.c_str(), text.c_str());
    logs_.push_back(text);
  };
}

void TinyRun::WriteText(const std::string& text) const { std::ofstream(folder_ + "/text.txt") << text; }

absl::StatusOr<TrainOutcome> TinyRun::Train() { return RunTraining(request_, callbacks_, &stop_); }

}  // namespace legoai::launch::testing
