#include "worker/comm/gloo_communicator.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

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
      if (bytes == 0) return absl::OkStatus();
      gloo::AllgatherOptions options(context_);
      options.setTag(tag_++);
      options.setInput(static_cast<uint8_t*>(const_cast<void*>(in)), bytes);
      options.setOutput(static_cast<uint8_t*>(out), bytes * size());
      gloo::allgather(options);
      return absl::OkStatus();
    });
  }

  absl::Status ReduceScatter(void* out, const void* in, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    auto reduce = ReduceFunction(dtype, op);
    if (!reduce.ok()) return reduce.status();
    return Guard(What("reduce_scatter"), [&] {
      RingReduceScatter(static_cast<char*>(out), static_cast<const char*>(in), count, c10::elementSize(dtype), *reduce);
      return absl::OkStatus();
    });
  }

  absl::Status AllReduce(void* data, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    auto reduce = ReduceFunction(dtype, op);
    if (!reduce.ok()) return reduce.status();
    return Guard(What("all_reduce"), [&] {
      if (count == 0) return absl::OkStatus();
      gloo::AllreduceOptions options(context_);
      options.setTag(tag_++);
      SetOutput(options, data, count, c10::elementSize(dtype));
      options.setReduceFunction(*reduce);
      gloo::allreduce(options);
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

  static void SetOutput(gloo::AllreduceOptions& options, void* data, int64_t count, size_t element) {
    switch (element) {  // Gloo wants a type for its size only; the reduce function knows the real one
      case 2: return options.setOutput(static_cast<uint16_t*>(data), count);
      case 4: return options.setOutput(static_cast<float*>(data), count);
      default: return options.setOutput(static_cast<double*>(data), count);
    }
  }

  // Gloo's own reduce_scatter wants power-of-two blocks. Block b starts at rank b+1 and gathers each rank's part on its way to b.
  void RingReduceScatter(char* out, const char* in, int64_t count, size_t element, Reduce reduce) {
    const int ranks = context_->size, self = context_->rank;
    const size_t bytes = count * element;
    if (bytes == 0) return;
    outgoing_.resize(bytes);
    incoming_.resize(bytes);
    std::memcpy(outgoing_.data(), in + bytes * ((self + ranks - 1) % ranks), bytes);
    for (int step = 0; step < ranks - 1; ++step) {
      const auto slot = gloo::Slot::build(kRing, ring_++);
      auto send = context_->createUnboundBuffer(outgoing_.data(), bytes);
      auto receive = context_->createUnboundBuffer(incoming_.data(), bytes);
      send->send((self + 1) % ranks, slot, 0, bytes);
      receive->recv((self + ranks - 1) % ranks, slot, 0, bytes);
      receive->waitRecv(timeout_);
      send->waitSend(timeout_);
      const int block = (self + 2 * ranks - step - 2) % ranks;
      reduce(outgoing_.data(), incoming_.data(), in + bytes * block, count);
    }
    std::memcpy(out, outgoing_.data(), bytes);
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

absl::StatusOr<std::unique_ptr<Communicator>> Connect(const Rendezvous& rendezvous, const graph::Group& group, int64_t rank,
                                                      int64_t channel) {
  const std::string key = absl::StrCat(group.name, "/", group.ranks.front(), "/", channel);
  std::unique_ptr<Communicator> communicator;
  absl::Status status = Guard(absl::StrCat("connecting group ", key), [&] {
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank), static_cast<int>(group.ranks.size()));
    context->setTimeout(rendezvous.options.connect_timeout);
    TorchStore base(rendezvous.store);
    gloo::rendezvous::PrefixStore store(key, base);
    auto device = rendezvous.device;
    context->connectFullMesh(store, device);
    context->setTimeout(rendezvous.options.timeout);
    communicator = std::make_unique<GlooCommunicator>(group.name, std::move(context), rendezvous.options.timeout);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return communicator;
}

}  // namespace

absl::StatusOr<CommunicatorFactory> MakeGlooFactory(const RendezvousOptions& options) {
  auto rendezvous = std::make_shared<Rendezvous>();
  rendezvous->options = options;
  auto store = OpenStore(options);
  if (!store.ok()) return store.status();
  rendezvous->store = *std::move(store);
  absl::Status status = Guard(absl::StrCat("opening a Gloo device on ", options.bind_address), [&] {
    gloo::transport::tcp::attr attributes(options.bind_address.c_str());
    rendezvous->device = gloo::transport::tcp::CreateDevice(attributes);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return CommunicatorFactory([rendezvous](const graph::Group& group, int64_t rank, int64_t channel) {
    return Connect(*rendezvous, group, rank, channel);
  });
}

}  // namespace legoai::comm
