#include "worker/launch/testing/scripted_check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/process/framing.h"
#include "proto/legoai/v1/machine_check.pb.h"
#include "worker/launch/check_pairs.h"

namespace legoai::launch::testing {
namespace {

bool IsNamed(const std::string& word) {
  const char* text = std::getenv("LEGOAI_TEST_CHECK");
  return absl::StrCat(",", text == nullptr ? "" : text, ",").find(absl::StrCat(",", word, ",")) != std::string::npos;
}

void Answer(int fd, v1::CheckResult result, bool fails) {
  result.set_passed(!fails);
  result.set_seconds(0.5);
  if (fails) result.set_text("it was told to fail\nin two lines");  // as errors of CUDA are
  (void)WriteMessage(fd, result);
}

void AnswerPairs(int fd, const v1::CheckTask& task) {
  for (const auto& round : CheckRounds(task.slots_size(), task.one_round())) {
    for (const auto& [a, b] : round) {
      if (a != task.rank() && b != task.rank()) continue;
      v1::CheckResult result;
      result.set_kind(v1::ALL_GATHER_CHECK);
      for (const int64_t rank : {a, b}) result.add_slots(task.slots(static_cast<int>(rank)));
      result.set_received_bytes_per_second(1e9);
      Answer(fd, result, IsNamed(absl::StrCat("pair:", result.slots(0), "-", result.slots(1))));
    }
  }
}

}  // namespace

int RunScriptedCheck(int fd) {
  MessageReader reader(fd);
  v1::CheckTask task;
  if (!reader.Read(&task).value_or(false)) return 1;
  if (IsNamed("hang:" + task.gpu())) pause();
  if (task.kind() == v1::DEVICE_CHECK && IsNamed("die:" + task.gpu())) {
    std::fprintf(stderr, "it was told to die\n");
    return 7;
  }
  if (task.kind() == v1::ALL_GATHER_CHECK) {
    AnswerPairs(fd, task);
  } else {
    v1::CheckResult result;
    result.set_kind(task.kind());
    Answer(fd, result, task.kind() == v1::DISK_CHECK ? IsNamed("disk") : IsNamed("device:" + task.gpu()));
  }
  (void)reader.Read(&task);
  return 0;
}

}  // namespace legoai::launch::testing
