// The storages that a recorder has seen, by number, and which of them have been freed.
//
// A storage is watched by wrapping the deleter of its memory: when the memory is freed, the deleter leaves a note, and only noted
// storages are checked (no sweep over all live ones). The wrapper stays on storages that outlive the table and is harmless there.
// Weak references prevent the address of a freed storage from being reused before its note is processed; strong references are
// never held.
//
// Used from one thread at a time; memory may be released on any thread.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace legoai::graph {

class StorageTable {
 public:
  StorageTable();
  ~StorageTable();
  StorageTable(const StorageTable&) = delete;
  StorageTable& operator=(const StorageTable&) = delete;

  std::optional<uint32_t> Find(c10::StorageImpl* storage) const;
  // Numbers are given in the order of adding, from 0. For unwatched storages only IsAlive() detects that they were freed.
  uint32_t Add(c10::StorageImpl* storage, bool watch);
  // Watched storages freed since the last call, in ascending order.
  std::vector<uint32_t> TakeFreed();

  int64_t& bytes(uint32_t id) { return entries_[id].bytes; }  // as last seen
  bool IsAlive(uint32_t id) const { return !entries_[id].reference.expired(); }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }

 private:
  struct NoteBoard;
  struct Watch;
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> reference;
    c10::StorageImpl* address;
    int64_t bytes = 0;
    bool taken = false;  // its release was reported
  };
  void StartWatching(c10::StorageImpl* storage, uint32_t id);

  absl::flat_hash_map<c10::StorageImpl*, uint32_t> ids_;
  std::vector<Entry> entries_;
  std::shared_ptr<NoteBoard> board_;
};

}  // namespace legoai::graph
