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
  std::map<std::string, std::vector<Lease>> plain;  // parts, by job
  for (int i = 0; i < 5000; ++i) {
    const std::string job = "job" + std::to_string(draw(6)), worker = "worker" + std::to_string(draw(3));
    const int64_t epoch = draw(4);
    const absl::Duration now = absl::Seconds(i);
    const auto part_of = [&]() -> Lease* {
      for (Lease& part : plain[job]) {
        if (part.worker == worker && part.epoch == epoch) return &part;
      }
      return nullptr;
    };
    switch (draw(5)) {
      case 0: {
        std::vector<Lease>& parts = plain[job] = {};
        const int64_t count = draw(3) + 1, first = draw(3);
        for (int64_t p = 0; p < count; ++p)
          parts.push_back({job, epoch, "worker" + std::to_string((first + p) % 3), draw(4) + 1, now});
        book.Grant(parts);
        break;
      }
      case 1:
        book.Release(job, epoch);
        if (!plain[job].empty() && plain[job].front().epoch == epoch) plain.erase(job);
        break;
      case 2:
        EXPECT_EQ(book.Renew(One(job, epoch), worker, "", now).empty(), part_of() != nullptr);
        if (Lease* const part = part_of()) part->renewed = now;
        break;
      case 3:
        book.EndPart(job, epoch, worker);
        if (Lease* const part = part_of()) part->ended = true;
        break;
      default:
        book.ExtendAll(absl::Seconds(1));
        for (auto& [name, parts] : plain) {
          for (Lease& part : parts) part.renewed += absl::Seconds(1);
        }
    }
    std::vector<Lease> of_worker, expired, all;
    for (const auto& [name, parts] : plain) {
      for (const Lease& part : parts) {
        all.push_back(part);
        if (part.worker == worker) of_worker.push_back(part);
        if (!part.ended && now - part.renewed > absl::Seconds(10)) expired.push_back(part);
      }
    }
    ASSERT_EQ(AsRows(book.OfWorker(worker)), AsRows(of_worker));
    ASSERT_EQ(AsRows(book.Expired(now)), AsRows(expired));
    ASSERT_EQ(AsRows(book.All()), AsRows(all));
    const bool is_held = !plain[job].empty() && plain[job].front().epoch == epoch;
    ASSERT_EQ(book.Find(job, epoch).size(), is_held ? plain[job].size() : 0);
    const auto held = book.FindHeld(One(job, epoch)[0], worker, "");
    ASSERT_EQ(held.has_value(), part_of() != nullptr);
    if (held) {
      ASSERT_EQ(held->workers, static_cast<int64_t>(plain[job].size()));
    }
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
