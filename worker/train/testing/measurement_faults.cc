// Linked into a trainer, makes measurements of its steps fail: steps 2 and 3 cannot be timed, for something is never said to have
// ended, and step 4 cannot be recorded, for another recorder is in the way.
#include <ATen/record_function.h>

#include <memory>
#include <thread>

#include "worker/comm/step_timeline.h"
#include "worker/graph/recorder.h"

namespace legoai::train {
namespace {

const std::thread::id kMain = std::this_thread::get_id();
int g_steps = 0;  // that have begun
bool g_in_step = false;
std::unique_ptr<graph::Recorder> g_in_the_way;

// Before each operator of the thread that trains. Inputs of a step are filled in before it is timed.
std::unique_ptr<at::ObserverContext> OnOperator(const at::RecordFunction&) {
  if (std::this_thread::get_id() != kMain) return nullptr;
  comm::StepTimeline* const timeline = comm::StepTimeline::Current();
  const bool begins = timeline != nullptr && !g_in_step;
  g_in_step = timeline != nullptr;
  if (begins) ++g_steps;
  if (begins && (g_steps == 2 || g_steps == 3)) timeline->OpenWait();
  if (g_in_step) return nullptr;
  if (g_steps == 3 && g_in_the_way == nullptr) {
    g_in_the_way = std::make_unique<graph::Recorder>();
    g_in_the_way->SetRecording(false);
  }
  if (g_steps == 4) g_in_the_way.reset();
  return nullptr;
}

[[maybe_unused]] const at::CallbackHandle kHandle = at::addGlobalCallback(at::RecordFunctionCallback(&OnOperator));

}  // namespace
}  // namespace legoai::train
