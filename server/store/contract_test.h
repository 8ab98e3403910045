// Tests that every back end of the store must pass. A back end's test links the contract_* libraries and says how to open it:
//
//   INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract, testing::Values(Backend{...}), BackendName);
//
// The tests are in contract_operations.cc, contract_records.cc, contract_transactions.cc and contract_model.cc.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/store.h"
#include "server/store/testing/must_read.h"

namespace legoai::store {

struct Backend {
  std::string name;
  // Opens the store that belongs to a folder; creates it if there is none. Its data must persist when another process opens it in
  // the same way later.
  std::function<absl::StatusOr<std::unique_ptr<Store>>(const std::string& folder)> open;
  // For StoreComparison: another back end, in the same way.
  std::function<absl::StatusOr<std::unique_ptr<Store>>(const std::string& folder)> open_other = nullptr;
};
inline void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }
inline std::string BackendName(const testing::TestParamInfo<Backend>& info) { return info.param.name; }

class StoreContract : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override;
  void TearDown() override;

  void Close() { store_.reset(); }
  void Reopen();
  Store& store() { return *store_; }
  const std::string& folder() const { return folder_; }

  // Each in its own transaction.
  absl::Status Write(const std::function<absl::Status(Transaction&)>& work) { return store_->Write(work); }
  absl::Status Insert(const v1::Job& job) {
    return Write([&](Transaction& t) { return t.InsertJob(job, {}); });
  }
  template <class Query>
  auto Read(const Query& query) {
    return MustRead(*store_, query);
  }

 private:
  std::string folder_;
  std::unique_ptr<Store> store_;
};

// Two back ends side by side; a back end's test that instantiates it names the other one (open_other).
class StoreComparison : public StoreContract {};

// A job of project "default" with an id that grows with `number`, created `number` seconds after some moment.
v1::Job MakeJob(int64_t number, v1::JobState state = v1::SUBMITTED, const std::string& project = "projects/default");
std::string JobName(int64_t number, const std::string& project = "projects/default");
std::string JobId(int64_t number);
int64_t CreateTime(int64_t number);

// The one after `job`, in `state`.
v1::Job Next(v1::Job job, v1::JobState state);

}  // namespace legoai::store
