// A client of the service that submits, repeats, cancels, retries and looks, at random, and notes what it is told. One thread
// each.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "tests/scenarios/told.h"

namespace legoai::scenarios {

struct ClientOptions {
  std::vector<v1::JobSpec> specs;  // to choose from
  int most_active = 5;             // jobs, beyond which nothing is submitted or retried
  bool ends_others = true;         // cancels some, also of those that others submitted; else of its own alone
  bool retries = true;             // tries some again
};

// What a client has done. An answer that did not come counts too.
struct Calls {
  int64_t submitted = 0, repeated = 0, cancelled = 0, retried = 0, looked = 0, unanswered = 0;
  int64_t saving = 0;  // of the cancellations
  void Add(const Calls& other);
};

// The server was away, or ended before it answered: whether it took the call is not known.
bool IsUnanswered(const grpc::Status& status);

class Client {
 public:
  // Nothing is owned; `stub` is shared. `name` begins its request_ids, and must be its own.
  Client(std::string name, uint32_t seed, const ClientOptions* options, v1::ControlPlane::Stub* stub, Told* told);

  // Acts until `stop`.
  void Run(const std::atomic<bool>& stop);
  // Lists all jobs; false where no answer came.
  bool Look();
  Calls TakeCalls();

 private:
  struct Sent {
    v1::CreateJobRequest request;
    std::string job;  // that it gave; empty: no answer came yet
  };

  void Act();
  void Submit();
  void Repeat();
  void RepeatWithOtherContent();
  void Cancel();
  void Retry();
  void Get();
  bool Full() const;  // as many jobs are active as may be
  void Create(Sent* sent);
  bool Unanswered(const grpc::Status& status);
  void Unexpected(const std::string& call, const grpc::Status& status);
  std::string NextRequest();
  uint32_t Draw(size_t below) { return static_cast<uint32_t>(random_() % below); }
  // A job that some client knows, in a final state or not; empty: there is none.
  std::string Any(const std::map<std::string, ToldJob>& known, bool final_too);
  std::map<std::string, ToldJob> OwnOf(const std::map<std::string, ToldJob>& known) const;

  const std::string name_;
  std::mt19937 random_;
  const ClientOptions* const options_;
  v1::ControlPlane::Stub* const stub_;
  Told* const told_;
  int64_t requests_ = 0;
  std::vector<Sent> sent_;
  std::map<std::string, std::string> retries_;  // request_id -> job that is tried again
  Calls calls_;
};

}  // namespace legoai::scenarios
