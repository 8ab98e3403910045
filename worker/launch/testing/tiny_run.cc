#include "worker/launch/testing/tiny_run.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"

namespace legoai::launch::testing {

v1::Model TinyLlama() {
  v1::Model model =
      model::Llama({.vocab = 256, .hidden = 16, .intermediate = 32, .layers = 2, .heads = 4, .kv_heads = 2, .positions = 64});
  model.set_name("tiny");
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
