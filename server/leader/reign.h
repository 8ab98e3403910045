// All that a server has while it leads: the store that it may write to, under its term, and the controller, which is made from
// what the store has, as after a restart. It ends with the term: a server that leads again has another reign, and nothing of an
// earlier one can write under the new term.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "server/fleet/controller.h"
#include "server/jobs/notifier.h"
#include "server/metrics/store_metrics.h"
#include "server/store/store.h"

namespace legoai::server {

// What the store is told, and tells, of the reign that has it. Thread-safe.
struct ReignSigns {
  std::atomic<bool> superseded = false;  // the store says that another server leads
  std::atomic<bool> over = false;        // the reign has ended: no write waits for the database any more
};

// The store of a reign: refuses every write once that is over, for nobody renews leases then who could be judged by them.
// Thread-safe.
class ReignStore : public store::Store {
 public:
  ReignStore(std::unique_ptr<store::Store> store, std::shared_ptr<ReignSigns> signs)
      : store_(std::move(store)), signs_(std::move(signs)) {}

  absl::Status Write(const std::function<absl::Status(store::Transaction&)>& work) override;
  absl::Status Read(const std::function<absl::Status(store::ReadTransaction&)>& work) override { return store_->Read(work); }
  std::string Backend() const override { return store_->Backend(); }
  int64_t SchemaVersion() const override { return store_->SchemaVersion(); }

 private:
  const std::unique_ptr<store::Store> store_;
  const std::shared_ptr<ReignSigns> signs_;
};

// Thread-safe.
class Reign {
 public:
  // Leads from now on. `renew_every`: how often a leader that has nothing to write writes all the same, so that others see it
  // live; zero: never, nobody watches. `notifier` and the options' metrics are not owned.
  Reign(std::unique_ptr<store::Store> store, std::shared_ptr<ReignSigns> signs, const ControllerOptions& options,
        Notifier* notifier, absl::Duration renew_every);
  // Waits for what is under way.
  ~Reign();

  // Loads what the store has, once. store() may be used at once, controller() from then on.
  absl::Status Begin() { return controller_.Begin(); }
  store::Store& store() { return measured_; }
  Controller& controller() { return controller_; }

  // For how long nothing that was begun since has been written, or the store says that another leads: infinite.
  absl::Duration Silence() const;
  // No write waits any more, users' plans and simulations are given up, and every agent is told `why`.
  void End(const absl::Status& why);
  bool over() const { return signs_->over; }

 private:
  void Renew(absl::Duration every);

  const std::shared_ptr<ReignSigns> signs_;
  ReignStore store_;
  MeasuredStore measured_;
  Controller controller_;
  std::atomic<int64_t> renewed_ns_;  // monotonic: when the latest write that took place was begun
  Bell bell_;
  std::thread renewing_;
};

}  // namespace legoai::server
