#include "server/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

namespace legoai::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// What a signal handler may touch.
std::atomic<launch::StopPipe*> current_pipe = nullptr;
std::atomic<int> signals_seen = 0;
std::atomic<const char*> first_answer = nullptr, later_answer = nullptr;

void OnSignal(int) {
  const int kept_errno = errno;
  const bool first = signals_seen.fetch_add(1) == 0;
  if (launch::StopPipe* pipe = current_pipe.load()) pipe->Request(/*save=*/first);
  if (const char* answer = (first ? first_answer : later_answer).load()) (void)!write(STDERR_FILENO, answer, std::strlen(answer));
  errno = kept_errno;
}

// In the place of the live line, which is written anew below.
std::string AsLine(const std::string& text) { return (isatty(STDERR_FILENO) ? "\r\033[K" : "") + text + "\n"; }

struct sigaction previous[std::size(kSignals)], previous_pipe;

// A signal that is ignored stays so: under nohup a run outlives its terminal.
void SetHandlers(InterruptGuard::ClosedOutput closed_output) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &previous[i]);
    if (previous[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
  action.sa_handler = closed_output == InterruptGuard::ClosedOutput::kIsIgnored ? SIG_IGN : SIG_DFL;
  sigaction(SIGPIPE, &action, &previous_pipe);
}

void RestoreHandlers() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous[i], nullptr);
  sigaction(SIGPIPE, &previous_pipe, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(ClosedOutput closed_output) {
  signals_seen = 0;
  current_pipe = &stop_;
  SetHandlers(closed_output);
}

InterruptGuard::~InterruptGuard() {
  RestoreHandlers();
  current_pipe = nullptr;
  first_answer = later_answer = nullptr;
}

void InterruptGuard::Announce(const std::string& first, const std::string& later) {
  if (first_answer.load() != nullptr) return;
  first_answer_ = AsLine(first);
  later_answer_ = AsLine(later);
  first_answer = first_answer_.c_str();
  later_answer = later_answer_.c_str();
}

bool InterruptGuard::interrupted() const { return signals_seen > 0; }

}  // namespace legoai::cli
