#include "tests/integration/case_parts.h"

#include <string>
#include <vector>

#include "core/recipe/chunks.h"
#include "core/schedule/schedule_csv.h"

namespace legoai::integration {
namespace {

// Parts of the model that end before the layers of `cuts`, and the last one.
void ListParts(const std::vector<int64_t>& cuts, Case* test_case) {
  auto* parallelism = test_case->recipe.mutable_parallelism();
  v1::ModelPart* part = parallelism->add_module_fqns_per_model_part();
  for (const std::string& name : parallel::ModuleNames(test_case->model.num_hidden_layers())) {
    for (const int64_t cut : cuts) {
      if (name == "layers." + std::to_string(cut)) part = parallelism->add_module_fqns_per_model_part();
    }
    part->add_modules(name);
  }
}

}  // namespace

// Six layers: four chunks of one or two layers, or six.
void AddPipelinesOfSeveralChunks(std::vector<Case>* cases) {
  const v1::PipelineSchedule interleaved = v1::INTERLEAVED_1F1B, looped = v1::LOOPED_BFS;
  const std::vector<Layout> layouts = {
      {.name = "pp2_interleaved", .pp = 2, .schedule = interleaved},
      {.name = "pp2_looped", .pp = 2, .schedule = looped},
      {.name = "fsdp2_pp2_interleaved", .shard = 2, .pp = 2, .schedule = interleaved},
      {.name = "tp2_pp2_interleaved", .tp = 2, .pp = 2, .schedule = interleaved},
      {.name = "fsdp2_tp2_pp2_interleaved", .shard = 2, .tp = 2, .pp = 2, .schedule = interleaved},
      {.name = "fsdp2_tp2_pp2_looped", .shard = 2, .tp = 2, .pp = 2, .schedule = looped},
  };
  for (const Layout& layout : layouts) {
    cases->push_back(Make(layout, DeepLlama()));
    cases->push_back(Checkpointed(cases->back()));
  }
  for (size_t index : {2, 4}) cases->push_back(Bf16(Make(layouts[index], DeepLlama())));
  const std::vector<Layout> others = {
      {.name = "pp2_interleaved_3_chunks", .pp = 2, .schedule = interleaved, .layers_per_stage = 1},
      {.name = "pp3_interleaved_uneven_rounds", .pp = 3, .schedule = interleaved},
      {.name = "pp3_interleaved_fewer_microbatches_than_ranks", .pp = 3, .schedule = interleaved, .microbatch = 4},
      {.name = "pp2_interleaved_shorter_ends", .pp = 2, .schedule = interleaved, .first_less = 1, .last_less = 1},
      {.name = "pp4_1f1b_shorter_ends", .pp = 4, .first_less = 1, .last_less = 1},
      {.name = "hsdp2x2_pp2_interleaved", .replicate = 2, .shard = 2, .pp = 2, .schedule = interleaved},
      {.name = "ddp2_pp2_looped", .replicate = 2, .pp = 2, .schedule = looped},
      {.name = "pp3_looped", .pp = 3, .schedule = looped},
  };
  for (const Layout& layout : others) cases->push_back(Make(layout, DeepLlama()));
  cases->push_back(Accumulated(Make({.name = "fsdp2_pp2_looped", .shard = 2, .pp = 2, .schedule = looped}, DeepLlama())));
  cases->push_back(Accumulated(Make(layouts[2], DeepLlama())));
  for (const auto& [name, schedule, cuts] :
       {std::tuple<const char*, v1::PipelineSchedule, std::vector<int64_t>>{"pp2_parts", v1::ONE_F_ONE_B, {4}},
        {"pp2_looped_parts", looped, {1, 4, 5}}}) {
    cases->push_back(Make({.name = name, .pp = 2, .schedule = schedule}, DeepLlama()));
    ListParts(cuts, &cases->back());
  }
  const v1::PipelineSchedule zero = v1::INTERLEAVED_ZERO_BUBBLE;
  const std::vector<Layout> zero_bubbles = {
      {.name = "pp2_zb_h1", .pp = 2, .schedule = zero, .layers_per_stage = 3},
      {.name = "pp3_zb_h1", .pp = 3, .schedule = zero, .layers_per_stage = 2},
      {.name = "fsdp2_pp2_zb_h1", .shard = 2, .pp = 2, .schedule = zero, .layers_per_stage = 3},
      {.name = "fsdp2_tp2_pp2_interleaved_zb", .shard = 2, .tp = 2, .pp = 2, .schedule = zero},
      {.name = "ddp2_pp2_interleaved_zb", .replicate = 2, .pp = 2, .schedule = zero},
  };
  for (const Layout& layout : zero_bubbles) cases->push_back(Make(layout, DeepLlama()));
  for (size_t index : {1, 3}) cases->push_back(Checkpointed(Make(zero_bubbles[index], DeepLlama())));
  for (size_t index : {2, 3}) cases->push_back(Bf16(Make(zero_bubbles[index], DeepLlama())));
  cases->push_back(Accumulated(Make(zero_bubbles[2], DeepLlama())));
  v1::Model gpt2 = UntiedGpt2();
  gpt2.set_name("tiny-gpt2-untied-deep");
  gpt2.set_num_hidden_layers(6);
  cases->push_back(Make({.name = "gpt2_untied_pp2_zb_h1", .pp = 2, .schedule = zero, .layers_per_stage = 3}, gpt2));
  cases->push_back(Make({.name = "gpt2_untied_pp2_interleaved", .pp = 2, .schedule = interleaved}, gpt2));
}

// The embedding is on the first rank and, as the head, on the last.
void AddPipelinesOfTiedModels(std::vector<Case>* cases) {
  v1::Model llama = DeepLlama();
  llama.set_name("tiny-llama-deep-tied");
  llama.set_tie_word_embeddings(true);
  for (const Layout& layout :
       {Layout{.name = "tied_pp2", .pp = 2}, Layout{.name = "tied_fsdp2_tp2_pp2", .shard = 2, .tp = 2, .pp = 2}}) {
    cases->push_back(Make(layout, llama));
    cases->push_back(Checkpointed(cases->back()));
  }
  const std::vector<Layout> others = {
      {.name = "tied_pp3_gpipe", .pp = 3, .schedule = v1::GPIPE},
      {.name = "tied_fsdp2_pp3_interleaved", .shard = 2, .pp = 3, .schedule = v1::INTERLEAVED_1F1B},
      {.name = "tied_hsdp2x2_pp2_looped", .replicate = 2, .shard = 2, .pp = 2, .schedule = v1::LOOPED_BFS},
  };
  for (const Layout& layout : others) cases->push_back(Make(layout, llama));
  cases->push_back(Bf16(Make({.name = "tied_fsdp2_pp2", .shard = 2, .pp = 2}, llama)));
  cases->push_back(Accumulated(Make({.name = "tied_ddp2_pp2", .replicate = 2, .pp = 2}, llama)));
  cases->push_back(Make({.name = "gpt2_tp2_pp2", .tp = 2, .pp = 2}, TinyGpt2()));
  cases->push_back(Checkpointed(Make({.name = "gpt2_fsdp2_pp3", .shard = 2, .pp = 3}, TinyGpt2())));
}

// Two chunks a rank, down the ranks and up again: the first rank has embedding and head. And schedules from files: a V that turns
// twice, so that its last chunk is the last rank's, and one whose ranks part backwards or not as each likes.
void AddPipelinesInAV(std::vector<Case>* cases) {
  const v1::PipelineSchedule zbv = v1::ZBV_ZERO_BUBBLE, dual = v1::DUALPIPE_V;
  v1::Model tied = DeepLlama();
  tied.set_name("tiny-llama-deep-tied");
  tied.set_tie_word_embeddings(true);
  const v1::Model gpt2 = DeepGpt2();
  v1::Model eight = DeepLlama();
  eight.set_name("tiny-llama-8");
  eight.set_num_hidden_layers(8);
  cases->push_back(Make({.name = "pp2_zbv", .pp = 2, .schedule = zbv}, DeepLlama()));
  cases->push_back(Checkpointed(Make({.name = "fsdp2_pp2_zbv", .shard = 2, .pp = 2, .schedule = zbv}, DeepLlama())));
  cases->push_back(Bf16(Make({.name = "fsdp2_tp2_pp2_zbv", .shard = 2, .tp = 2, .pp = 2, .schedule = zbv}, DeepLlama())));
  cases->push_back(Make({.name = "pp4_zbv", .pp = 4, .schedule = zbv}, eight));
  cases->push_back(Make({.name = "hsdp2x2_pp2_zbv", .replicate = 2, .shard = 2, .pp = 2, .schedule = zbv}, DeepLlama()));
  cases->push_back(
      Make({.name = "pp2_zbv_shorter_ends", .pp = 2, .schedule = zbv, .first_less = 1, .last_less = 1}, DeepLlama()));
  cases->push_back(Accumulated(Make({.name = "tied_fsdp2_pp2_zbv", .shard = 2, .pp = 2, .schedule = zbv}, tied)));
  cases->push_back(Bf16(Make({.name = "tied_ddp2_tp2_pp2_zbv", .replicate = 2, .tp = 2, .pp = 2, .schedule = zbv}, tied)));
  cases->push_back(Make({.name = "gpt2_pp2_zbv", .pp = 2, .schedule = zbv}, gpt2));
  cases->push_back(KeepingOperators(Make({.name = "gpt2_tp2_pp3_zbv", .tp = 2, .pp = 3, .schedule = zbv}, gpt2)));
  cases->push_back(Make({.name = "pp3_dualpipev", .pp = 3, .schedule = dual}, DeepLlama()));
  cases->push_back(
      Checkpointed(Make({.name = "fsdp2_tp2_pp2_dualpipev", .shard = 2, .tp = 2, .pp = 2, .schedule = dual}, DeepLlama())));
  cases->push_back(Bf16(Make({.name = "tied_fsdp2_pp2_dualpipev", .shard = 2, .pp = 2, .schedule = dual}, tied)));
  const auto listed = [&](const Layout& layout, const v1::Model& model, const parallel::Schedule& schedule) {
    cases->push_back(Make(layout, model));
    cases->back().recipe.mutable_parallelism()->set_pipeline_parallel_schedule_csv(parallel::ScheduleToCsv(schedule));
  };
  listed({.name = "tied_pp2_listed_turns_twice", .pp = 2}, tied, parallel::BreadthFirst({2, 6, true}, 8, true));
  parallel::Schedule mixed = parallel::MakeSchedule(v1::ONE_F_ONE_B, 2, 2, 4).value();
  mixed.ranks[1] = parallel::MakeSchedule(v1::INTERLEAVED_ZERO_BUBBLE, 2, 2, 4)->ranks[1];
  listed({.name = "fsdp2_pp2_listed_mixed", .shard = 2, .pp = 2}, DeepLlama(), mixed);
}

}  // namespace legoai::integration
