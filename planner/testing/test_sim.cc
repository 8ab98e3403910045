// Stands in for lego-sim in tests of the pool: the same protocol, and trouble by order. The model's name says what to do, in
// words: "crash", "exit", "hang", "eat" (memory without end), "garbage", "other-id", "empty", "slow" (tells twenty times,
// 100 ms apart, how far it is, and answers), "progress-hang" and "progress-repeat" (hang or repeat themselves after that),
// "progress-crash"; "together" sends progress and its answer at once; "ok" answers at once, "ok-then-exit" ends afterwards,
// "eat-later" answers and keeps 256 MiB. "used" makes a crash or a meal of one that has answered before only, "hang-used" a hang.
// An answer fits, and carries the process's number as `operators`.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "core/process/framing.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::planner {
namespace {

std::vector<std::vector<char>> eaten;

void Eat(int64_t mebibytes) {
  for (int64_t i = 0; i < mebibytes; ++i) {
    eaten.emplace_back(1 << 20);
    std::memset(eaten.back().data(), 1, eaten.back().size());
  }
}

[[noreturn]] void WaitForTheEnd() {
  for (;;) pause();
}

v1::SimResponse Answer(const v1::SimRequest& request) {
  v1::SimResponse response;
  response.set_id(request.id());
  *response.mutable_estimate()->mutable_recipe() = request.recipe();
  response.mutable_estimate()->set_fits(true);
  response.mutable_estimate()->add_stages();
  response.mutable_estimate()->set_operators(getpid());
  return response;
}

void Misbehave(int fd, const std::string& order) {
  if (absl::StartsWith(order, "crash")) abort();
  if (absl::StartsWith(order, "exit")) _exit(7);
  if (absl::StartsWith(order, "hang")) WaitForTheEnd();
  if (order == "eat" || order == "eat-used") {
    Eat(512);
    WaitForTheEnd();
  }
  if (order == "garbage") {
    const std::string bytes = "\x7f\xff\xff\xff no message";
    (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    WaitForTheEnd();
  }
}

constexpr int kTold = 20;

void TellProgress(int fd, uint64_t id, int done) {
  v1::SimResponse response;
  response.set_id(id);
  response.mutable_progress()->set_phase("the step is replayed");
  response.mutable_progress()->set_done(done);
  response.mutable_progress()->set_total(kTold);
  if (!launch::WriteMessage(fd, response).ok()) _exit(0);
  usleep(100'000);
}

void MakeProgress(int fd, uint64_t id, const std::string& order) {
  for (int i = 1; i <= kTold; ++i) TellProgress(fd, id, i);
  if (order == "progress-crash") abort();
  if (order == "progress-hang") WaitForTheEnd();
  while (order == "progress-repeat") TellProgress(fd, id, kTold);
}

// A message as it is sent: four bytes of length, little-endian, then itself.
std::string Framed(const v1::SimResponse& response) {
  const std::string bytes = response.SerializeAsString();
  std::string framed;
  for (int shift = 0; shift < 32; shift += 8) framed += static_cast<char>(bytes.size() >> shift & 0xff);
  return framed + bytes;
}

void AnswerTogether(int fd, const v1::SimResponse& answer) {
  v1::SimResponse told;
  told.set_id(answer.id());
  told.mutable_progress()->set_phase("what is left out");
  const std::string both = Framed(told) + Framed(answer);
  (void)send(fd, both.data(), both.size(), MSG_NOSIGNAL);
}

int Serve(int fd) {
  launch::MessageReader reader(fd);
  v1::SimRequest request;
  for (bool used = false;; used = true) {
    const auto more = reader.Read(&request);
    if (!more.ok() || !*more) return 0;
    const std::string order = request.model().name();
    if (used || !absl::EndsWith(order, "-used")) Misbehave(fd, order);
    if (order == "slow" || absl::StartsWith(order, "progress-")) MakeProgress(fd, request.id(), order);
    v1::SimResponse response = Answer(request);
    if (order == "other-id") response.set_id(request.id() + 1000);
    if (order == "empty") response.clear_estimate();
    if (order == "eat-later") Eat(256);
    if (order == "together") {
      AnswerTogether(fd, response);
      continue;
    }
    if (!launch::WriteMessage(fd, response).ok() || order == "ok-then-exit") return 0;
  }
}

}  // namespace
}  // namespace legoai::planner

int main(int, char** argv) {
  absl::string_view argument = argv[1];
  int fd = -1;
  if (!absl::ConsumePrefix(&argument, "--socket=") || !absl::SimpleAtoi(argument, &fd)) return 2;
  return legoai::planner::Serve(fd);
}
