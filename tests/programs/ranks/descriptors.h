/* Sends file descriptors to other processes. */
#ifndef CUTAPE_DESCRIPTORS_H
#define CUTAPE_DESCRIPTORS_H

#include <sys/socket.h>

#include "program.h"

/* Sends a descriptor over a socket, and closes it. */
static void send_descriptor(int socket, int descriptor)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    EXPECT(sendmsg(socket, &message, 0) == 1);
    close(descriptor);
}

static int receive_descriptor(int socket)
{
    int descriptor = -1;
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    EXPECT(recvmsg(socket, &message, 0) == 1);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    EXPECT(head != NULL && head->cmsg_type == SCM_RIGHTS);
    memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
    return descriptor;
}

#endif
