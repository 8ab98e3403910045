// lego-sim: answers SimRequests on a socket until it is closed.
//   lego-sim --socket=FD [--full-trace] [--passes=FILE]
#include <ATen/Parallel.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/process/framing.h"
#include "proto/errors.h"
#include "proto/text.h"
#include "simulator/estimate/estimate.h"
#include "worker/comm/cpu_tensors.h"

namespace legoai::sim {
namespace {

// Progress is told on `fd` while the answer is made; whether it could be, the answer will show.
v1::SimResponse Answer(const v1::SimRequest& request, const EstimateOptions& options, int fd) {
  v1::SimResponse response;
  response.set_id(request.id());
  auto tell = [&](const v1::SimProgress& progress) {
    v1::SimResponse told;
    told.set_id(request.id());
    *told.mutable_progress() = progress;
    (void)launch::WriteMessage(fd, told);
  };
  auto estimate = EstimateRecipe(request, tell, options);
  if (estimate.ok()) {
    *response.mutable_estimate() = *std::move(estimate);
    return response;
  }
  auto* error = response.mutable_error();
  error->set_code(static_cast<int>(estimate.status().code()));
  error->set_message(ToUtf8(std::string(estimate.status().message())));
  if (auto violation = GetFieldViolation(estimate.status())) {
    error->set_field(violation->field());
    error->set_value(violation->value());
    error->set_remedy(violation->remedy());
  }
  return response;
}

int Serve(const EstimateOptions& options, int fd) {
  launch::MessageReader reader(fd);
  v1::SimRequest request;
  for (;;) {
    auto more = reader.Read(&request);
    if (!more.ok()) {
      std::fprintf(stderr, "lego-sim: %s\n", std::string(more.status().message()).c_str());
      return 1;
    }
    if (!*more) return 0;
    if (absl::Status status = launch::WriteMessage(fd, Answer(request, options, fd)); !status.ok()) return 1;
  }
}

}  // namespace
}  // namespace legoai::sim

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Requests, too, take and give back the same hundreds of megabytes.
  legoai::comm::KeepFreedMemory();
  legoai::comm::UseKnownCpuKernels();
  at::set_num_threads(1);
  int fd = -1;
  legoai::sim::EstimateOptions options;
  const std::string passes = absl::StrCat(legoai::sim::kPassesOption, "=");
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == legoai::sim::kFullTraceOption) {
      options.files.full = true;
      continue;
    }
    if (absl::ConsumePrefix(&argument, passes)) {
      options.passes_path = std::string(argument);
      continue;
    }
    if (!absl::ConsumePrefix(&argument, "--socket=") || !absl::SimpleAtoi(argument, &fd)) fd = -1;
  }
  if (fd < 0) {
    std::fprintf(stderr,
                 "usage: lego-sim --socket=FD [--full-trace] [--passes=FILE] (started by lego; see lego simulate --help)\n");
    return 2;
  }
  return legoai::sim::Serve(options, fd);
}
