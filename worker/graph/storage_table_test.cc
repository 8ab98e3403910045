#include "worker/graph/storage_table.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace legoai::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

at::Tensor Make(int64_t bytes = 64) { return at::empty({bytes}, at::TensorOptions().dtype(at::kByte)); }
c10::StorageImpl* StorageOf(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

TEST(StorageTableTest, DeathsAreToldOnceInTheOrderOfNumbers) {
  StorageTable table;
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 4; ++i) {
    tensors.push_back(Make());
    EXPECT_EQ(table.Add(StorageOf(tensors.back()), true), i);
  }
  EXPECT_THAT(table.TakeFreed(), IsEmpty());
  tensors[3].reset();
  tensors[1].reset();
  EXPECT_THAT(table.TakeFreed(), ElementsAre(1, 3));
  EXPECT_THAT(table.TakeFreed(), IsEmpty());
  EXPECT_FALSE(table.IsAlive(1));
  EXPECT_TRUE(table.IsAlive(0));
  EXPECT_EQ(table.Find(StorageOf(tensors[2])), 2);
}

TEST(StorageTableTest, NoReferenceIsHeld) {
  StorageTable table;
  const at::Tensor tensor = Make();
  const auto before = tensor.storage().use_count();
  table.Add(StorageOf(tensor), true);
  EXPECT_EQ(tensor.storage().use_count(), before);
}

TEST(StorageTableTest, AResizedStorageLivesOnAndItsDeathIsSeen) {
  StorageTable table;
  for (int64_t bytes : {128, 0}) {
    at::Tensor tensor = Make();
    const uint32_t id = table.Add(StorageOf(tensor), true);
    auto* storage = StorageOf(tensor);
    storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
    storage->set_nbytes(bytes);
    EXPECT_THAT(table.TakeFreed(), IsEmpty());
    EXPECT_EQ(table.Find(storage), id);
    tensor.reset();
    EXPECT_THAT(table.TakeFreed(), ElementsAre(id));
  }
}

TEST(StorageTableTest, ADeathOnAnotherThreadIsSeen) {
  StorageTable table;
  at::Tensor tensor = Make();
  table.Add(StorageOf(tensor), true);
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_THAT(table.TakeFreed(), ElementsAre(0));
}

TEST(StorageTableTest, ANewStorageIsNeverTakenForADeadOne) {
  StorageTable table;
  for (int i = 0; i < 100; ++i) {
    const at::Tensor tensor = Make();
    EXPECT_FALSE(table.Find(StorageOf(tensor)).has_value());
    EXPECT_EQ(table.Add(StorageOf(tensor), i % 2 == 0), i);
  }
  EXPECT_EQ(table.TakeFreed().size(), 50);
  for (uint32_t i = 0; i < 100; ++i) EXPECT_FALSE(table.IsAlive(i));
}

TEST(StorageTableTest, StoragesMayOutliveTheTable) {
  at::Tensor tensor = Make();
  {
    StorageTable table;
    table.Add(StorageOf(tensor), true);
  }
  tensor.mutable_data_ptr<uint8_t>()[0] = 1;
  {
    StorageTable table;
    EXPECT_EQ(table.Add(StorageOf(tensor), true), 0);
    tensor.reset();
    EXPECT_THAT(table.TakeFreed(), ElementsAre(0));
  }
}

}  // namespace
}  // namespace legoai::graph
