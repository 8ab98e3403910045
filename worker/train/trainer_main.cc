// legoai-trainer: trains one rank. Started by a launcher (worker/launch/launcher.h), with whom it speaks over the socket whose
// descriptor is given as --socket=FD. With --check=FD it is started by an agent, and checks a part of the machine instead
// (machine_check.h).
#include <signal.h>

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "core/objectstore/s3_options.h"
#include "core/process/build_version.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/launch/trainer_link.h"
#include "worker/train/machine_check.h"
#include "worker/train/trainer.h"

namespace legoai::train {
namespace {

launch::TrainerLink* signalled = nullptr;

// A termination signal is a request to save and stop, as the launcher's Stop is.
void OnTerminate(int) { signalled->RequestStop(/*save=*/true); }

// -1: it is not there.
int ParseDescriptor(int argc, char** argv, absl::string_view option) {
  absl::string_view argument = argc == 2 ? argv[1] : "";
  int fd = -1;
  return absl::ConsumePrefix(&argument, option) && absl::SimpleAtoi(argument, &fd) ? fd : -1;
}

int Main(int argc, char** argv) {
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error with a remedy (ulimit -f), not the end
  if (const int check = ParseDescriptor(argc, argv, "--check="); check >= 0) return RunCheck(check);
  const int fd = ParseDescriptor(argc, argv, "--socket=");
  if (fd < 0) {
    std::fprintf(stderr, "legoai-trainer is started by `lego train`, with --socket=FD\n");
    return 2;
  }
  auto link = launch::TrainerLink::Connect(fd, launch::BuildVersion());
  if (!link.ok()) {
    std::fprintf(stderr, "legoai-trainer: %s\n", std::string(link.status().message()).c_str());
    return 1;
  }
  signalled = link->get();
  signal(SIGTERM, OnTerminate);
  // What the ranks have trained since the last checkpoint is worth more than the minutes in which a store may come back.
  objectstore::SetMaxAttempts(objectstore::kPatient);
  Trainer trainer(**link);
  const auto cause = trainer.Run();
  (*link)->SendExit(cause.ok() ? *cause : v1::Exit::FAILED, trainer.step(), cause.status()).IgnoreError();
  if (!cause.ok()) std::fprintf(stderr, "legoai-trainer: %s\n", std::string(cause.status().message()).c_str());
  signal(SIGTERM, SIG_IGN);
  return cause.ok() ? 0 : 1;
}

}  // namespace
}  // namespace legoai::train

int main(int argc, char** argv) {
  legoai::comm::UseKnownCpuKernels();
  legoai::comm::KeepFreedMemory();
  return legoai::train::Main(argc, argv);
}
