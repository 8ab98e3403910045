// For tests: counts the bytes that CPU tensors hold.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

namespace legoai::parallel::testing {

// Takes the place of the CPU allocator while it lives. At most one at a time; memory it gave out may outlive it.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) {
    Books& books = GetBooks();
    books.live = books.peak = 0;
    books.sizes.clear();
    books.inner = inner_;
    c10::SetCPUAllocator(this, /*priority=*/100);
  }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, /*priority=*/100); }

  int64_t live() const { return GetBooks().live; }
  int64_t peak() const { return GetBooks().peak; }
  void ResetPeak() { GetBooks().peak = GetBooks().live; }

  // Data and context are one pointer: oneDNN asks for that.
  c10::DataPtr allocate(size_t bytes) override {
    void* data = inner_->raw_allocate(bytes);
    Books& books = GetBooks();
    std::lock_guard lock(books.mutex);
    if (data != nullptr) books.sizes[data] = bytes;
    books.live += bytes;
    books.peak = std::max(books.peak, books.live);
    return {data, data, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { inner_->copy_data(to, from, bytes); }

 private:
  struct Books {
    std::mutex mutex;
    std::map<void*, int64_t> sizes;
    int64_t live = 0, peak = 0;
    c10::Allocator* inner = nullptr;
  };
  static Books& GetBooks() {
    static auto* books = new Books;
    return *books;
  }
  static void Free(void* data) {
    Books& books = GetBooks();
    {
      std::lock_guard lock(books.mutex);
      auto it = books.sizes.find(data);
      if (it != books.sizes.end()) {
        books.live -= it->second;
        books.sizes.erase(it);
      }
    }
    books.inner->raw_deallocate(data);
  }
  c10::Allocator* inner_;
};

}  // namespace legoai::parallel::testing
