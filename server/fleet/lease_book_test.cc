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
        plain[job] = {job, epoch, worker, draw(4) + 1, now};
        book.Grant({plain[job]});
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
    ASSERT_EQ(book.Find(job, epoch).size(), is_held ? 1 : 0);
    ASSERT_EQ(book.FindHeld(One(job, epoch)[0], worker, "").has_value(), is_held && now_held->second.worker == worker);
    ASSERT_FALSE(book.FindHeld(One(job, epoch)[0], worker, "another process").has_value());
  }
}

TEST(LeaseBookTest, AGangIsRenewedByEachOfItsWorkersAndExpiresWithAnyOfThem) {
  LeaseBook book(absl::Seconds(10));
  const Lease first{.job = "job", .epoch = 3, .worker = "a", .slots = 2, .instance = "1"};
  Lease second = first;
  second.worker = "b", second.instance = "2", second.first_rank = 2;
  book.Grant({first, second});
  ASSERT_EQ(book.Find("job", 3).size(), 2);
  EXPECT_TRUE(book.Find("job", 2).empty());
  EXPECT_TRUE(book.FindHeld(One("job", 3)[0], "a", "1")->IsFirst());
  EXPECT_FALSE(book.FindHeld(One("job", 3)[0], "b", "2")->IsFirst());
  EXPECT_FALSE(book.FindHeld(One("job", 3)[0], "b", "1"));
  EXPECT_TRUE(book.Renew(One("job", 3), "a", "1", absl::Seconds(15)).empty());
  ASSERT_EQ(book.Expired(absl::Seconds(16)).size(), 1);
  EXPECT_EQ(book.Expired(absl::Seconds(16))[0].worker, "b");
  EXPECT_EQ(book.OfWorker("b").size(), 1);
  book.Release("job", 3);
  EXPECT_TRUE(book.OfWorker("a").empty());
  EXPECT_TRUE(book.OfWorker("b").empty());
  // The trainers of both are fenced off.
  EXPECT_EQ(book.Renew(One("job", 3), "b", "2", absl::Seconds(17)).size(), 1);
}

}  // namespace
}  // namespace legoai::server
