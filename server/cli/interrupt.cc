#include "server/cli/interrupt.h"

#include <signal.h>

#include <atomic>

namespace legoai::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// What a signal handler may touch.
std::atomic<launch::StopPipe*> current_pipe = nullptr;
std::atomic<int> signals_seen = 0;

void OnSignal(int) {
  const bool first = signals_seen.fetch_add(1) == 0;
  if (launch::StopPipe* pipe = current_pipe.load()) pipe->Request(/*save=*/first);
}

void SetHandlers(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  for (int signal_number : kSignals) sigaction(signal_number, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  signals_seen = 0;
  current_pipe = &stop_;
  SetHandlers(OnSignal);
}

InterruptGuard::~InterruptGuard() {
  SetHandlers(SIG_DFL);
  current_pipe = nullptr;
}

bool InterruptGuard::interrupted() const { return signals_seen > 0; }

}  // namespace legoai::cli
