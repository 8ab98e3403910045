#include "server/fleet/lease_book.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

namespace legoai::server {
namespace {

using Row = std::tuple<std::string, int64_t, std::string, int64_t, absl::Duration>;

Row AsRow(const Lease& lease) { return {lease.job, lease.epoch, lease.worker, lease.slots, lease.renewed}; }

std::vector<Row> AsRows(const std::vector<Lease>& leases) {
  std::vector<Row> rows;
  for (const Lease& lease : leases) rows.push_back(AsRow(lease));
  return rows;
}

google::protobuf::RepeatedPtrField<v1::LeaseId> One(const std::string& job, int64_t epoch) {
  google::protobuf::RepeatedPtrField<v1::LeaseId> leases;
  leases.Add()->set_job(job);
  leases[0].set_epoch(epoch);
  return leases;
}

// Against a list that is searched from end to end.
TEST(LeaseBookTest, EqualsAPlainList) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  auto draw = [&](int most) { return static_cast<int64_t>(random() % static_cast<uint32_t>(most)); };
  LeaseBook book(absl::Seconds(10));
  std::map<std::string, Lease> plain;
  for (int i = 0; i < 5000; ++i) {
    const std::string job = "job" + std::to_string(draw(6)), worker = "worker" + std::to_string(draw(3));
    const int64_t epoch = draw(4);
    const absl::Duration now = absl::Seconds(i);
    const auto held = plain.find(job);
    const bool same = held != plain.end() && held->second.epoch == epoch;
    switch (draw(4)) {
      case 0:
        book.Grant({job, epoch, worker, draw(4) + 1, now});
        plain[job] = *book.Find(job, epoch);
        break;
      case 1:
        book.Release(job, epoch);
        if (same) plain.erase(job);
        break;
      case 2:
        EXPECT_EQ(book.Renew(One(job, epoch), worker, "", now).empty(), same && held->second.worker == worker);
        if (same && held->second.worker == worker) held->second.renewed = now;
        break;
      default:
        book.ExtendAll(absl::Seconds(1));
        for (auto& [name, lease] : plain) lease.renewed += absl::Seconds(1);
    }
    std::vector<Lease> of_worker, expired, all;
    for (const auto& [name, lease] : plain) {
      all.push_back(lease);
      if (lease.worker == worker) of_worker.push_back(lease);
      if (now - lease.renewed > absl::Seconds(10)) expired.push_back(lease);
    }
    ASSERT_EQ(AsRows(book.OfWorker(worker)), AsRows(of_worker));
    ASSERT_EQ(AsRows(book.Expired(now)), AsRows(expired));
    ASSERT_EQ(AsRows(book.All()), AsRows(all));
    const auto now_held = plain.find(job);
    const bool is_held = now_held != plain.end() && now_held->second.epoch == epoch;
    ASSERT_EQ(book.Find(job, epoch).has_value(), is_held);
    ASSERT_EQ(book.IsHeld(One(job, epoch)[0], worker, ""), is_held && now_held->second.worker == worker);
    ASSERT_FALSE(book.IsHeld(One(job, epoch)[0], worker, "another process"));
  }
}

}  // namespace
}  // namespace legoai::server
