// delay_proxy.cpp: a link between TCP clients and one server that is slow, narrow, silent or cut, as it is told.
//
//   c++ -std=c++17 -O2 -o delay_proxy delay_proxy.cpp
//   delay_proxy HOST PORT [LISTEN_HOST]
//
// It prints the port that it listens at (of 127.0.0.1), then reads commands from standard input, one a line, and
// answers each with "ok CONNECTIONS BYTES_UP BYTES_DOWN" once it holds. It ends with its input.
//
//   delay MICROSECONDS    each way, for bytes that come from here on
//   rate BYTES_A_SECOND   each way, shared by all connections; 0: as fast as the machine
//   freeze                nothing passes, no connection ends: a network that is parted
//   cut                   resets all connections, and each new one: a link that is down and says so
//   reset                 resets all connections; new ones pass
//   mend                  ends freeze and cut; what waited passes
//   target HOST PORT      of connections to come
//
// Bytes pass in order, each once. TCP's own handshake is not delayed. One thread; each direction of a connection holds
// at most kMostWaiting bytes, and is not read beyond that, so a slow reader slows the writer, as windows do.

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr size_t kPiece = 128 << 10;
// A piece goes on when its last byte has crossed: small ones, where a narrow link makes that late.
constexpr size_t kNarrowPiece = 8 << 10;
constexpr size_t kMostWaiting = 8 << 20;

using Buffer = std::unique_ptr<char[]>;

int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "delay_proxy: %s: %s\n", what, strerror(errno));
  exit(1);
}

struct Piece {
  int64_t due;
  Buffer bytes;
  size_t size, sent;  // a size of 0: the writer has closed
};

struct Socket {
  int fd = -1;
  // As edges of epoll left them.
  bool readable = false, writable = false;
};

struct Direction {
  std::deque<Piece> waiting;
  size_t num_waiting = 0;
  bool has_ended = false;  // the writer has closed
  bool is_over = false;    // and the reader knows
};

struct Connection {
  Socket ends[2];           // the client's, the server's
  Direction directions[2];  // up, from the client; down
};

struct Link {
  int64_t delay_ns = 0, bytes_per_s = 0;
  int64_t free_at[2] = {0, 0};  // when the last byte of what came has crossed a narrow link
  bool is_frozen = false, is_cut = false;
  uint64_t num_bytes[2] = {0, 0};
};

sockaddr_in address_of(const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
  return address;
}

class Proxy {
 public:
  Proxy(sockaddr_in target, const char* listen_host) : target_(target) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in own = address_of(listen_host, 0);
    socklen_t size = sizeof own;
    if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&own), size) ||
        listen(listener_, 128) || getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size))
      fail("listen");
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (epoll_ < 0 || timer_ < 0) fail("epoll");
    watch(listener_, EPOLLIN, &listener_);
    watch(timer_, EPOLLIN, &timer_);
    watch(STDIN_FILENO, EPOLLIN, &epoll_);
    printf("%d\n", ntohs(own.sin_port));
    fflush(stdout);
  }

  void run() {
    for (epoll_event events[64];;) {
      int num_events = epoll_wait(epoll_, events, 64, -1);
      if (num_events < 0 && errno != EINTR) fail("epoll_wait");
      bool is_told = false;
      for (int i = 0; i < num_events; i++) {
        void* who = events[i].data.ptr;
        if (who == &listener_) {
          accept_all();
        } else if (who == &timer_) {
          uint64_t times;
          (void)!read(timer_, &times, sizeof times);
        } else if (who == &epoll_) {
          is_told = true;  // later: a command may end connections that other events are about
        } else {
          auto* end = static_cast<Socket*>(who);
          // An error shows at the next read or write.
          end->readable |= (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
          end->writable |= (events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
        }
      }
      if (is_told && !obey()) return;
      pass();
    }
  }

 private:
  void watch(int fd, uint32_t events, void* who) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = who;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
  }

  void accept_all() {
    // While nothing passes, the kernel keeps those who knock: they are connected, and hear nothing.
    if (link_.is_frozen) {
      epoll_ctl(epoll_, EPOLL_CTL_DEL, listener_, nullptr);
      is_deaf_ = true;
      return;
    }
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
      int server =
          link_.is_cut ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (server < 0 || (connect(server, reinterpret_cast<sockaddr*>(&target_), sizeof target_) &&
                         errno != EINPROGRESS)) {
        reset(fd);
        if (server >= 0) close(server);
        continue;
      }
      Connection& connection = connections_.emplace_back();
      for (int side = 0; side < 2; side++) {
        Socket& end = connection.ends[side];
        end.fd = side ? server : fd;
        int on = 1;
        setsockopt(end.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(end.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &end);
      }
    }
  }

  static void reset(int fd) {
    linger none{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(fd);
  }

  void reset_all() {
    for (Connection& connection : connections_)
      for (Socket& end : connection.ends) reset(end.fd);
    connections_.clear();
  }

  // Reads, and writes what is due, until neither goes on; then sets the timer to when something is.
  void pass() {
    if (link_.is_frozen) return;
    int64_t next = INT64_MAX;
    for (auto each = connections_.begin(); each != connections_.end();) {
      bool is_sound = true, is_over = true;
      for (int way = 0; way < 2 && is_sound; way++) {
        is_sound = pass(*each, way, next);
        is_over &= each->directions[way].is_over;
      }
      if (is_sound && !is_over) {
        ++each;
        continue;
      }
      for (Socket& end : each->ends) is_sound ? (void)close(end.fd) : reset(end.fd);
      each = connections_.erase(each);
    }
    itimerspec when{};
    if (next != INT64_MAX) {
      when.it_value.tv_sec = next / 1000000000;
      when.it_value.tv_nsec = next % 1000000000;
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  }

  // False: the connection is broken.
  bool pass(Connection& connection, int way, int64_t& next) {
    Socket &from = connection.ends[way], &to = connection.ends[1 - way];
    Direction& direction = connection.directions[way];
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      if (from.readable && !direction.has_ended && direction.num_waiting < kMostWaiting) {
        if (!take(from, direction, way)) return false;
        goes_on = true;
      }
      while (!direction.waiting.empty() && to.writable &&
             direction.waiting.front().due <= now_ns()) {
        if (!give(to, direction)) return false;
        goes_on = true;
      }
    }
    if (!direction.waiting.empty() && to.writable)
      next = std::min(next, direction.waiting.front().due);
    return true;
  }

  bool take(Socket& from, Direction& direction, int way) {
    if (!spare_.size()) spare_.emplace_back(new char[kPiece]);
    size_t most = link_.bytes_per_s ? kNarrowPiece : kPiece;
    ssize_t size = recv(from.fd, spare_.back().get(), most, 0);
    if (size < 0) {
      from.readable = false;
      return errno == EAGAIN || errno == ENOTCONN;  // the server's end, not yet connected
    }
    int64_t now = now_ns(), crossed = now;
    if (link_.bytes_per_s)
      crossed = link_.free_at[way] =
          std::max(now, link_.free_at[way]) + int64_t(size * 1e9 / double(link_.bytes_per_s));
    Piece piece{crossed + link_.delay_ns, nullptr, size_t(size), 0};
    // A delay that shrinks lets no byte overtake another.
    if (!direction.waiting.empty()) piece.due = std::max(piece.due, direction.waiting.back().due);
    if (size) {
      piece.bytes = std::move(spare_.back());
      spare_.pop_back();
    }
    direction.has_ended = !size;
    direction.num_waiting += size;
    link_.num_bytes[way] += size;
    direction.waiting.push_back(std::move(piece));
    return true;
  }

  bool give(Socket& to, Direction& direction) {
    Piece& piece = direction.waiting.front();
    if (!piece.size) {
      shutdown(to.fd, SHUT_WR);
      direction.is_over = true;
      direction.waiting.pop_front();
      return true;
    }
    ssize_t sent =
        send(to.fd, piece.bytes.get() + piece.sent, piece.size - piece.sent, MSG_NOSIGNAL);
    if (sent < 0) {
      to.writable = false;
      return errno == EAGAIN;
    }
    piece.sent += sent;
    direction.num_waiting -= sent;
    if (piece.sent == piece.size) {
      if (spare_.size() < 64) spare_.push_back(std::move(piece.bytes));
      direction.waiting.pop_front();
    }
    return true;
  }

  bool obey() {
    char text[256];
    ssize_t size = read(STDIN_FILENO, text, sizeof text);
    if (size <= 0) return false;
    commands_.append(text, size);
    for (size_t end; (end = commands_.find('\n')) != std::string::npos;
         commands_.erase(0, end + 1)) {
      char word[16] = "", host[64] = "";
      long long number = 0;
      std::string line = commands_.substr(0, end);
      sscanf(line.c_str(), "%15s", word);
      std::string command = word;
      if (command == "delay" && sscanf(line.c_str(), "%*s %lld", &number) == 1) {
        link_.delay_ns = number * 1000;
      } else if (command == "rate" && sscanf(line.c_str(), "%*s %lld", &number) == 1) {
        link_.bytes_per_s = number;
      } else if (command == "target" && sscanf(line.c_str(), "%*s %63s %lld", host, &number) == 2) {
        target_ = address_of(host, int(number));
      } else if (command == "freeze") {
        link_.is_frozen = true;
      } else if (command == "cut" || command == "reset") {
        link_.is_cut = command == "cut";
        reset_all();
      } else if (command == "mend") {
        link_.is_frozen = link_.is_cut = false;
        if (is_deaf_) watch(listener_, EPOLLIN, &listener_);
        is_deaf_ = false;
      } else if (command != "count") {
        printf("what is '%s'?\n", line.c_str());
        fflush(stdout);
        continue;
      }
      printf("ok %zu %llu %llu\n", connections_.size(), (unsigned long long)link_.num_bytes[0],
             (unsigned long long)link_.num_bytes[1]);
      fflush(stdout);
    }
    return true;
  }

  sockaddr_in target_;
  Link link_;
  std::list<Connection> connections_;  // epoll knows where each of their ends is
  std::vector<Buffer> spare_;
  std::string commands_;
  int listener_, epoll_, timer_;
  bool is_deaf_ = false;
};

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments < 3) {
    fprintf(stderr, "usage: delay_proxy HOST PORT [LISTEN_HOST]\n");
    return 2;
  }
  Proxy(address_of(arguments[1], atoi(arguments[2])),
        num_arguments > 3 ? arguments[3] : "127.0.0.1")
      .run();
}
