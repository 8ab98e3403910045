// Metrics of the store: gauges, set before a scrape, and how long writes take. Thread-safe.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "proto/legoai/v1/worker.pb.h"
#include "server/metrics/registry.h"
#include "server/store/store.h"

namespace legoai::server {

// Slots are those of ready workers, which a job could get. Use is that of connected ones.
void SetWorkerGauges(const std::vector<v1::Worker>& workers, Metrics* metrics);

// Jobs of all projects. Blocks while the store reads. Errors: those of the store; the gauges then stay unchanged.
absl::Status SetJobGauges(store::Store& store, Metrics* metrics);

// Of a server that does not lead: the leader tells of jobs and workers, and a sum over the servers counts each once.
void ClearGauges(Metrics* metrics);

// A Store that measures how long its writes take until they are durable, and passes everything on to another store.
class MeasuredStore : public store::Store {
 public:
  // Owns neither; both must outlive it.
  MeasuredStore(store::Store* store, Metrics* metrics) : store_(store), metrics_(metrics) {}

  absl::Status Write(const std::function<absl::Status(store::Transaction&)>& work) override {
    const absl::Time start = absl::Now();
    absl::Status status = store_->Write(work);
    metrics_->StoreWrite(absl::ToDoubleSeconds(absl::Now() - start));
    return status;
  }
  absl::Status Read(const std::function<absl::Status(store::ReadTransaction&)>& work) override { return store_->Read(work); }
  std::string Backend() const override { return store_->Backend(); }
  int64_t SchemaVersion() const override { return store_->SchemaVersion(); }

 private:
  store::Store* const store_;
  Metrics* const metrics_;
};

}  // namespace legoai::server
