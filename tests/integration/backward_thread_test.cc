// On a GPU autograd runs backward on a thread of its own, with what it takes for the caller's state (at::ThreadLocalState). Here
// an engine does that on the CPU: recording, hooks of checkpointing, streams and annotations must not notice. The capture, whose
// backward runs on the calling thread, is the oracle.
#include <ATen/ThreadLocalState.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>

#include <exception>
#include <thread>

#include "core/trace/verify.h"
#include "simulator/capture/capture.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/runtime.h"
#include "worker/parallel/activation_checkpoint.h"

namespace legoai::integration {
namespace {

using ::testing::IsEmpty;
using torch::autograd::Engine;

// Everything else is asked of the engine that was there before, which knows the hooks of checkpointing.
class OtherThreadEngine : public Engine {
 public:
  static void Install() {
    parallel::SavedTensorHookScope install_hook_engine(nullptr);
    before_ = &Engine::get_default_engine();
    torch::autograd::set_default_engine_stub([]() -> Engine& {
      static auto* engine = new OtherThreadEngine;
      return *engine;
    });
  }
  static int64_t backwards() { return backwards_; }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots, const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    ++backwards_;
    torch::autograd::variable_list result;
    std::exception_ptr error;
    const at::ThreadLocalState state;
    std::thread([&] {
      at::ThreadLocalStateGuard guard(state);
      try {
        result = Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error) std::rethrow_exception(error);
    return result;
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return before_->get_default_saved_variable_hooks();
  }

 private:
  static inline Engine* before_ = nullptr;
  static inline int64_t backwards_ = 0;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Case& test_case : ParityCases()) {
    for (const char* name : {"fsdp2_ac", "gpt2_ddp2", "gpt2_fsdp2_ac", "fsdp2_bf16", "pp2_1f1b_ac", "tp2_ac", "fsdp2_accumulate2",
                             "gpt2_tp2_ac", "tp4_kv2_ac"}) {
      if (test_case.name == name) cases.push_back(test_case);
    }
  }
  return cases;
}

void CheckRank(const Case& test_case, int64_t rank, const parallel::ResolvedRecipe& resolved) {
  auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  const graph::Trace captured = Must(sim::CaptureStep(resolved, rank)).trace;
  OtherThreadEngine::Install();
  FillInputs(step->inputs(), test_case, resolved, rank, 0);
  Must(step->Run());
  graph::Recorder recorder;
  recorder.SetRecording(false);
  const graph::Trace recorded = Must(sim::RecordStep(recorder, *step));
  EXPECT_GE(OtherThreadEngine::backwards(), 2);
  EXPECT_THAT(graph::Differences(recorded, captured), IsEmpty());
  EXPECT_THAT(recorded.warnings, IsEmpty());
}

class BackwardThreadTest : public testing::TestWithParam<Case> {};

TEST_P(BackwardThreadTest, ABackwardOnAnotherThreadIsRecordedAlike) {
  RunCase(GetParam(), [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    CheckRank(GetParam(), rank, resolved);
    return std::string();
  });
}

TEST(BackwardThreadTest, HasAllItsCases) { EXPECT_EQ(Cases().size(), 9u); }

INSTANTIATE_TEST_SUITE_P(Recipes, BackwardThreadTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace legoai::integration
