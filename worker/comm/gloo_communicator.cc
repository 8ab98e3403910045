#include "worker/comm/gloo_communicator.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/status.h"

namespace legoai::comm {
namespace {

using Reduce = void (*)(void*, const void*, const void*, size_t);

template <class T, bool kMax>
void ReduceTyped(void* out, const void* left, const void* right, size_t count) {
  auto* o = static_cast<T*>(out);
  auto* a = static_cast<const T*>(left);
  auto* b = static_cast<const T*>(right);
  for (size_t i = 0; i < count; ++i) {
    if constexpr (kMax) {
      o[i] = a[i] < b[i] ? b[i] : a[i];
    } else {
      o[i] = a[i] + b[i];
    }
  }
}

template <class T>
Reduce Choose(ReduceOp op) {
  return op == ReduceOp::kMax ? &ReduceTyped<T, true> : &ReduceTyped<T, false>;
}

absl::StatusOr<Reduce> ReduceFunction(c10::ScalarType dtype, ReduceOp op) {
  switch (dtype) {
    case c10::ScalarType::Float: return Choose<float>(op);
    case c10::ScalarType::Double: return Choose<double>(op);
    case c10::ScalarType::BFloat16: return Choose<c10::BFloat16>(op);
    case c10::ScalarType::Half: return Choose<c10::Half>(op);
    case c10::ScalarType::Long: return Choose<int64_t>(op);
    default: return absl::UnimplementedError(absl::StrCat("Gloo cannot reduce elements of type ", c10::toString(dtype)));
  }
}

class TorchStore : public gloo::rendezvous::Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::vector<char>& value) override {
    store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
  }
  std::vector<char> get(const std::string& key) override {
    auto value = store_->get(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { store_->wait(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    store_->wait(keys, timeout);
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

// Gloo and the store throw; here is where their exceptions end.
template <class F>
absl::Status Guard(const std::string& what, F&& call) {
  try {
    return call();
  } catch (const std::exception& e) {
    return ToStatus(what, e);
  }
}

// All-gather, reduce-scatter and all-reduce are rings of plain messages: Gloo's own all-gather and all-reduce cut them into many
// that are under way at once, and take three times as long for small tensors; its reduce-scatter wants power-of-two blocks.
class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(std::string name, std::shared_ptr<gloo::rendezvous::Context> context, std::chrono::milliseconds timeout)
      : name_(std::move(name)),
        context_(std::move(context)),
        timeout_(timeout),
        sent_(context_->size),
        received_(context_->size) {}

  int64_t rank() const override { return context_->rank; }
  int64_t size() const override { return context_->size; }

  absl::Status AllGather(void* out, const void* in, int64_t bytes) override {
    return Guard(What("all_gather"), [&] {
      char* blocks = static_cast<char*>(out);
      std::memmove(blocks + bytes * rank(), in, bytes);
      RingAllGather(blocks, rank(), [bytes](int64_t block) { return bytes * block; });
      return absl::OkStatus();
    });
  }

  absl::Status ReduceScatter(void* out, const void* in, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    ASSIGN_OR_RETURN(auto reduce, ReduceFunction(dtype, op));
    return Guard(What("reduce_scatter"), [&] {
      RingReduceScatter(static_cast<char*>(out), static_cast<const char*>(in), count, c10::elementSize(dtype), reduce);
      return absl::OkStatus();
    });
  }

  absl::Status AllReduce(void* data, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    ASSIGN_OR_RETURN(auto reduce, ReduceFunction(dtype, op));
    return Guard(What("all_reduce"), [&] {
      RingAllReduce(static_cast<char*>(data), count, c10::elementSize(dtype), reduce);
      return absl::OkStatus();
    });
  }

  absl::Status AllToAll(void* out, const void* in, int64_t bytes) override {
    return Guard(What("all_to_all"), [&] {
      gloo::AlltoallOptions options(context_);
      options.setTag(tag_++);
      options.setInput(static_cast<uint8_t*>(const_cast<void*>(in)), bytes * size());
      options.setOutput(static_cast<uint8_t*>(out), bytes * size());
      gloo::alltoall(options);
      return absl::OkStatus();
    });
  }

  absl::Status Rotate(void* out, const void* in, int64_t bytes) override {
    return Guard(What("rotate"), [&] {
      Exchange(static_cast<const char*>(in), bytes, static_cast<char*>(out), bytes);
      return absl::OkStatus();
    });
  }

  absl::Status Broadcast(void* data, int64_t bytes, int64_t root) override {
    return Guard(What("broadcast"), [&] {
      gloo::BroadcastOptions options(context_);
      options.setTag(tag_++);
      options.setRoot(static_cast<int>(root));
      options.setOutput(static_cast<uint8_t*>(data), bytes);
      gloo::broadcast(options);
      return absl::OkStatus();
    });
  }

  absl::Status Send(const void* data, int64_t bytes, int64_t peer) override {
    return Guard(What("send"), [&] {
      auto buffer = context_->createUnboundBuffer(const_cast<void*>(data), bytes);
      buffer->send(static_cast<int>(peer), gloo::Slot::build(kMessage, sent_.at(peer)++), 0, bytes);
      buffer->waitSend(timeout_);
      return absl::OkStatus();
    });
  }

  absl::Status Recv(void* data, int64_t bytes, int64_t peer) override {
    return Guard(What("recv"), [&] {
      auto buffer = context_->createUnboundBuffer(data, bytes);
      buffer->recv(static_cast<int>(peer), gloo::Slot::build(kMessage, received_.at(peer)++), 0, bytes);
      buffer->waitRecv(timeout_);
      return absl::OkStatus();
    });
  }

 private:
  static constexpr uint8_t kRing = 0x40, kMessage = 0x41;  // apart from Gloo's own slot prefixes

  std::string What(const char* kind) const {
    return absl::StrCat(kind, " of group ", name_, " (rank ", rank(), " of ", size(), ")");
  }

  // Where block b of a buffer begins, in bytes; block `size()` is its end.
  using Begin = std::function<int64_t(int64_t block)>;

  int64_t Wrap(int64_t block) const { return (block % size() + size()) % size(); }

  // One step of a ring: to the next rank, from the one before.
  void Exchange(const char* send, int64_t send_bytes, char* receive, int64_t receive_bytes) {
    const auto slot = gloo::Slot::build(kRing, ring_++);
    auto in = context_->createUnboundBuffer(receive, receive_bytes);
    auto out = context_->createUnboundBuffer(const_cast<char*>(send), send_bytes);
    if (send_bytes > 0) out->send(static_cast<int>(Wrap(rank() + 1)), slot, 0, send_bytes);
    if (receive_bytes > 0) in->recv(static_cast<int>(Wrap(rank() - 1)), slot, 0, receive_bytes);
    if (receive_bytes > 0) in->waitRecv(timeout_);
    if (send_bytes > 0) out->waitSend(timeout_);
  }

  // Every rank starts with block `own` of its own and ends with all.
  void RingAllGather(char* blocks, int64_t own, const Begin& begin) {
    for (int64_t step = 0; step < size() - 1; ++step) {
      const int64_t send = Wrap(own - step), receive = Wrap(own - step - 1);
      Exchange(blocks + begin(send), begin(send + 1) - begin(send), blocks + begin(receive), begin(receive + 1) - begin(receive));
    }
  }

  // Block b starts at rank b, gathers each rank's part on its way around, is whole at rank b - 1, and goes around once more.
  void RingAllReduce(char* data, int64_t count, int64_t element, Reduce reduce) {
    const Begin begin = [&](int64_t block) { return count * block / size() * element; };
    Reserve(incoming_, (count / size() + 1) * element);
    for (int64_t step = 0; step < size() - 1; ++step) {
      const int64_t send = Wrap(rank() - step), receive = Wrap(rank() - step - 1);
      const int64_t bytes = begin(receive + 1) - begin(receive);
      Exchange(data + begin(send), begin(send + 1) - begin(send), incoming_.data(), bytes);
      reduce(data + begin(receive), incoming_.data(), data + begin(receive), bytes / element);
    }
    RingAllGather(data, Wrap(rank() + 1), begin);
  }

  // Never smaller again: what a vector grows by is zeroed, each time.
  static void Reserve(std::vector<char>& buffer, int64_t bytes) {
    if (static_cast<int64_t>(buffer.size()) < bytes) buffer.resize(bytes);
  }

  // Block b starts at rank b+1 and gathers each rank's part on its way to b. Nothing is copied: the first block is sent from
  // where it lies, and the last sum is made where it belongs.
  void RingReduceScatter(char* out, const char* in, int64_t count, int64_t element, Reduce reduce) {
    const int64_t bytes = count * element, last = size() - 2;
    if (bytes == 0) return;
    Reserve(incoming_, bytes);
    if (last > 0) Reserve(outgoing_, bytes);
    for (int64_t step = 0; step <= last; ++step) {
      Exchange(step == 0 ? in + bytes * Wrap(rank() - 1) : outgoing_.data(), bytes, incoming_.data(), bytes);
      reduce(step == last ? out : outgoing_.data(), incoming_.data(), in + bytes * Wrap(rank() - step - 2), count);
    }
  }

  std::string name_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::chrono::milliseconds timeout_;
  uint32_t tag_ = 0, ring_ = 0;
  std::vector<uint32_t> sent_, received_;  // messages so far, by peer
  std::vector<char> outgoing_, incoming_;
};

struct Rendezvous {
  RendezvousOptions options;
  c10::intrusive_ptr<c10d::Store> store;
  std::shared_ptr<gloo::transport::Device> device;
};

// A device whose event loop never takes a core from the rank's other threads when it wakes: it runs when they wait, or at the
// scheduler's tick. Otherwise, where a rank has one core, a message that arrives while the caller sends wakes the loop, which
// finds the pair's lock held and spins on it until that tick: milliseconds for many a small collective (docs/architecture.md). A
// lower priority does not keep it from that; the policy for batches does (sched(7)), which a thread takes from the one that makes
// it.
std::shared_ptr<gloo::transport::Device> CreateYieldingDevice(const gloo::transport::tcp::attr& attributes) {
  std::shared_ptr<gloo::transport::Device> device;
  std::exception_ptr failure;
  std::thread maker([&] {
    sched_param parameters{};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);  // if it is refused the loop is as good as before
    try {
      device = gloo::transport::tcp::CreateDevice(attributes);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  maker.join();
  if (failure) std::rethrow_exception(failure);
  return device;
}

absl::StatusOr<std::unique_ptr<Communicator>> Connect(const Rendezvous& rendezvous, const mesh::Group& group, int64_t rank,
                                                      int64_t channel) {
  const std::string key = absl::StrCat(mesh::NameOf(group.dim), "/", group.ranks.first, "/", channel);
  std::unique_ptr<Communicator> communicator;
  absl::Status status = Guard(absl::StrCat("connecting group ", key), [&] {
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank), static_cast<int>(group.ranks.size));
    context->setTimeout(rendezvous.options.connect_timeout);
    TorchStore base(rendezvous.store);
    gloo::rendezvous::PrefixStore store(key, base);
    auto device = rendezvous.device;
    context->connectFullMesh(store, device);
    context->setTimeout(rendezvous.options.timeout);
    communicator = std::make_unique<GlooCommunicator>(mesh::NameOf(group.dim), std::move(context), rendezvous.options.timeout);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return communicator;
}

}  // namespace

absl::StatusOr<CommunicatorFactory> MakeGlooFactory(const RendezvousOptions& options) {
  auto rendezvous = std::make_shared<Rendezvous>();
  rendezvous->options = options;
  ASSIGN_OR_RETURN(auto store, OpenStore(options));
  rendezvous->store = std::move(store);
  absl::Status status = Guard(absl::StrCat("opening a Gloo device on ", options.bind_address), [&] {
    gloo::transport::tcp::attr attributes(options.bind_address.c_str());
    rendezvous->device = CreateYieldingDevice(attributes);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return CommunicatorFactory([rendezvous](const mesh::Group& group, int64_t rank, int64_t channel) {
    return Connect(*rendezvous, group, rank, channel);
  });
}

}  // namespace legoai::comm
