import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.*;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import io.netty.handler.timeout.IdleStateEvent;
import io.netty.handler.timeout.IdleStateHandler;
import java.io.*;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;

/** The echo server on Netty, as its users write it: a frame decoder, and a timeout of silence. */
public class Netty {
    static class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object frame) {
            ctx.write(frame, ctx.voidPromise());
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext ctx) {
            ctx.flush();
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
            if (event instanceof IdleStateEvent) {
                ctx.close();
            }
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
            ctx.close();
        }
    }

    public static void main(String[] args) throws Exception {
        long timeout = Long.parseLong(args[1]);
        EventLoopGroup loops = new NioEventLoopGroup(Integer.parseInt(args[0]));
        Channel server = new ServerBootstrap()
            .group(loops)
            .channel(NioServerSocketChannel.class)
            .option(ChannelOption.SO_BACKLOG, 4096)
            .childOption(ChannelOption.TCP_NODELAY, true)
            .childHandler(new ChannelInitializer<Channel>() {
                @Override
                protected void initChannel(Channel c) {
                    c.pipeline().addLast(
                        new IdleStateHandler(timeout, 0, 0, TimeUnit.MILLISECONDS),
                        new LengthFieldBasedFrameDecoder(1 << 20, 0, 4),
                        new Echo());
                }
            })
            .bind("127.0.0.1", 0).sync().channel();
        System.out.println("127.0.0.1:" + ((InetSocketAddress) server.localAddress()).getPort());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            if (line.equals("gc")) {
                System.gc();
            }
            System.out.println();
        }
        System.exit(0);
    }
}
