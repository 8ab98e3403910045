#include "worker/graph/storage_table.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/process/mutex.h"

namespace legoai::graph {

struct StorageTable::NoteBoard {
  std::atomic<bool> has_notes{false};
  Mutex mutex;
  std::vector<uint32_t> notes ABSL_GUARDED_BY(mutex);

  void Post(uint32_t id) {
    const MutexLock lock(mutex);
    notes.push_back(id);
    has_notes = true;
  }
  std::vector<uint32_t> Take() {
    if (!has_notes) return {};
    const MutexLock lock(mutex);
    has_notes = false;
    return std::exchange(notes, {});
  }
};

// In place of the memory's own context: releases it, then leaves the note.
struct StorageTable::Watch {
  std::unique_ptr<void, c10::DeleterFnPtr> context;
  std::shared_ptr<NoteBoard> board;
  uint32_t id;

  static void Delete(void* self) {
    std::unique_ptr<Watch> watch(static_cast<Watch*>(self));
    watch->context.reset();
    watch->board->Post(watch->id);
  }
};

StorageTable::StorageTable() : board_(std::make_shared<NoteBoard>()) {}
StorageTable::~StorageTable() = default;

std::optional<uint32_t> StorageTable::Find(c10::StorageImpl* storage) const {
  auto it = ids_.find(storage);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

uint32_t StorageTable::Add(c10::StorageImpl* storage, bool watch) {
  const uint32_t id = size();
  auto strong = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
  entries_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(strong), storage, static_cast<int64_t>(storage->nbytes())});
  ids_.insert_or_assign(storage, id);
  if (watch) StartWatching(storage, id);
  return id;
}

void StorageTable::StartWatching(c10::StorageImpl* storage, uint32_t id) {
  c10::DataPtr& memory = storage->_mutable_data_ptr_no_checks();
  void* data = memory.get();
  const c10::Device device = memory.device();
  auto* watch = new Watch{memory.move_context(), board_, id};
  memory = c10::DataPtr(data, watch, &Watch::Delete, device);
}

std::vector<uint32_t> StorageTable::TakeFreed() {
  std::vector<uint32_t> deaths;
  for (uint32_t id : board_->Take()) {
    Entry& entry = entries_[id];
    if (entry.taken) continue;
    if (!entry.reference.expired()) {  // given other memory: resized
      StartWatching(entry.address, id);
      continue;
    }
    entry.taken = true;
    ids_.erase(entry.address);
    entry.reference.reset();
    deaths.push_back(id);
  }
  std::sort(deaths.begin(), deaths.end());
  return deaths;
}

}  // namespace legoai::graph
